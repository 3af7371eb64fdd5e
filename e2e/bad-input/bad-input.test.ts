import { readdirSync, rmSync, statSync, truncateSync, writeFileSync, readFileSync } from "node:fs";
import { open, rename } from "node:fs/promises";
import { join } from "node:path";
import { buildOciLayout } from "@substrate/examples/oci.ts";
import { type Template, templates } from "@substrate/crds/index.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { belongings } from "../support/leftovers.ts";
import { eventually } from "../support/poll.ts";
import { Hands, namespace } from "./hands.ts";

let hands: Hands;

beforeAll(async () => {
  hands = await Hands.start();
  await hands.apply(
    hands.template("good"),
    hands.template("stored", {}, { snapshots: { uploadDelay: "0s" } }),
    hands.template("hasty", {}, { wakeTimeout: "2s" }),
  );
  for (const name of ["good", "stored", "hasty"]) await ready(name);
}, 120_000);

afterAll(async () => {
  const { stateDir, id } = hands.whole.cluster;
  await hands.stop();
  expect(belongings(stateDir, id)).toEqual([]);
}, 60_000);

function ready(name: string): Promise<void> {
  return eventually(
    async () => {
      const found: Template | undefined = await hands.whole.cluster.client.get(templates, name, namespace);
      expect(found?.status?.conditions?.find(({ type }) => type === "Ready")?.status).toBe("True");
    },
    { deadlineMs: 60_000 },
  );
}

/** A layout whose program is a file of text. */
async function layout(name: string, config: object): Promise<string> {
  const files = [{ path: "/bin/text", mode: 0o755, content: "no program" }];
  const outDir = join(hands.whole.cluster.stateDir, "layouts", name);
  return (await buildOciLayout({ name, files, config, outDir })).reference;
}

/** Turns one bit around in the middle of the largest file, and leaves its size and modification time as they are. */
async function flip(dir: string): Promise<void> {
  const paths = readdirSync(dir).map((name) => join(dir, name));
  const [largest = ""] = paths.toSorted((a, b) => statSync(b).size - statSync(a).size);
  const before = statSync(largest);
  const file = await open(largest, "r+");
  const byte = Buffer.alloc(1);
  const position = Math.floor(before.size / 2);
  await file.read(byte, 0, 1, position);
  byte[0] = (byte[0] ?? 0) ^ 1;
  await file.write(byte, 0, 1, position);
  await file.utimes(before.atime, before.mtime);
  await file.close();
}

describe("a Template that cannot work says so, and so do its actors", { timeout: 60_000 }, () => {
  it.concurrent.each<[string, () => Promise<object>, string, RegExp]>([
    [
      "no-store",
      () => of({}, { snapshots: { store: "nowhere" } }),
      "Invalid",
      /there is no store "nowhere" \(spec.snapshots.store of the Template\); configured: default/,
    ],
    [
      "no-secret",
      () => of({ env: [{ name: "TOKEN", valueFrom: { secretKeyRef: { name: "absent", key: "token" } } }] }),
      "SecretMissing",
      /variable TOKEN: Secret default\/absent does not exist: create it with key "token"/,
    ],
    [
      "no-image",
      () => of({ image: "127.0.0.1:1/nothing:1" }),
      "ImageUnavailable",
      /Image 127.0.0.1:1\/nothing:1: .*check that this node reaches the registry/,
    ],
    [
      "other-machine",
      async () => of({ image: await layout("arm", { entrypoint: ["/bin/text"], architecture: "arm64" }) }),
      "ImageInvalid",
      /arm64.*amd64/,
    ],
    [
      "no-command",
      async () => of({ image: await layout("none", {}) }),
      "ImageInvalid",
      /names no program to start: set command in the Template's container/,
    ],
    [
      "no-program",
      () => of({ command: ["/nosuch"] }),
      "ProgramExited",
      /Template no-program did not start: there is no program "\/nosuch" in the image, .*correct command and args of the Template's container/,
    ],
    [
      "no-executable",
      async () => of({ image: await layout("text", { entrypoint: ["/bin/text"] }) }),
      "ProgramExited",
      /Template no-executable did not start: "\/bin\/text" .*exec format error/,
    ],
    [
      "ends",
      () => of({ args: ["-nosuch"] }),
      "ProgramExited",
      /ended before it was ready: its program exited with code 2; its last output: .*-listen string/,
    ],
    [
      "giant",
      () => of({ resources: { limits: { memory: "8Ti" } } }),
      "NoRoom",
      /resources.limits.memory is 8.0 TiB, .*this node can give at most \d+ MiB .*lower it, or add a larger node/,
    ],
  ])("%s", async (name, make, reason, message) => {
    await hands.apply({ ...(await make()), metadata: { name } }, hands.actor(name, name));
    const described = await hands.described("template", name, new RegExp(`Reason: +${reason}`));
    expect(described).toMatch(message);
    // Events follow the status.
    await hands.described("template", name, /Warning +TemplateInvalid/);
    await hands.described("actor", name, /Reason: +TemplateNotReady/);
    const answer = await hands.get(name);
    expect(answer).toMatchObject({ status: 503, code: "TEMPLATE_NOT_READY" });
    expect(answer.message).toMatch(message);
  });

  function of(container: object, spec: { snapshots?: object } = {}): Promise<object> {
    return Promise.resolve(hands.template("", container, spec));
  }
});

describe("an actor that names what is not there", { timeout: 60_000 }, () => {
  it.concurrent.each<[string, object, string, RegExp]>([
    [
      "lost",
      { templateRef: { name: "no-such" } },
      "TEMPLATE_MISSING",
      /Template default\/no-such does not exist: create it, or delete this Actor and make it again with the right spec.templateRef/,
    ],
    [
      "sourceless",
      { source: { snapshotRef: { name: "absent" } } },
      "SNAPSHOT_MISSING",
      /its source, Snapshot default\/absent, does not exist: create it/,
    ],
    [
      "keyless",
      { env: [{ name: "KEY", valueFrom: { secretKeyRef: { name: "absent", key: "k" } } }] },
      "SECRET_MISSING",
      /variable KEY: Secret default\/absent does not exist: create it with key "k"/,
    ],
  ])("%s", async (name, spec, code, message) => {
    await hands.make(name, "good", spec);
    const answer = await hands.get(name);
    expect(answer).toMatchObject({ status: 503, code });
    expect(answer.message).toMatch(message);
    // A person must do something first; Secrets are looked for.
    expect(answer.retryAfter === undefined).toBe(code !== "SECRET_MISSING");
    await hands.described("actor", name, message);
    const { code: exit, output } = await hands.ate("resume", name);
    expect([exit, output]).toEqual([1, expect.stringMatching(message)]);
  });

  it.concurrent(
    "a name of 63 characters has no host name beside its namespace's, and one of 64 none at all",
    async () => {
      await expect(hands.apply(hands.actor("a".repeat(63), "good"))).rejects.toThrow(
        "a--default would be longer than 63 characters: use a shorter name",
      );
      await expect(hands.apply(hands.actor("a".repeat(64), "good"))).rejects.toThrow("at most 63 characters long");
      await expect(hands.apply(hands.actor("a.b", "good"))).rejects.toThrow("must not contain '.': use '-' instead");
      await hands.make("a".repeat(54), "good");
      expect(await hands.count("a".repeat(54))).toBe(1);
    },
  );
});

describe("kubectl ate", { timeout: 60_000 }, () => {
  it.concurrent("on an actor that is not there", async () => {
    for (const verb of [["describe"], ["suspend"], ["resume"], ["log"]]) {
      const { code, output } = await hands.ate(...verb, "nobody");
      expect([verb, code, output]).toEqual([
        verb,
        3,
        expect.stringContaining("there is no actor nobody in namespace default"),
      ]);
    }
  });

  it.concurrent("on one that sleeps, and has never run", async () => {
    await hands.apply(hands.actor("fresh", "good"));
    await hands.described("actor", "fresh", /Reason: +Asleep/);
    expect((await hands.ate("suspend", "fresh")).output).toContain("sleeps already: it was never saved");
    expect((await hands.ate("log", "fresh")).output).toContain("it has never run, so there is no output");
    expect((await hands.ate("tag", "fresh", "x")).output).toContain("has no state yet");
  });

  it.concurrent("on one that crashed", async () => {
    await hands.make("crashed", "good");
    await hands.count("crashed");
    await hands.get("crashed", "POST", "/exit?code=3");
    await hands.described("actor", "crashed", /its program exited with code 3/);
    expect((await hands.ate("describe", "crashed")).output).toMatch(/CRASHED(.|\n)*its program exited with code 3/);
    expect((await hands.ate("log", "crashed")).output).toContain("exiting with 3");
    const { code, output } = await hands.ate("suspend", "crashed");
    expect([code, output]).toEqual([1, expect.stringContaining("nothing to suspend; resume it first")]);
    expect(await hands.ate("resume", "crashed")).toMatchObject({ code: 0 });
    expect(await hands.count("crashed")).toBe(1);
  });

  it.concurrent("on one that is half deleted", async () => {
    await hands.make("leaving", "good", {}, { finalizers: ["test.substrate.run/wait"] });
    await hands.count("leaving");
    await hands.kubectl(["delete", "actor", "leaving", "-n", namespace, "--wait=false"]);
    await hands.described("actor", "leaving", /State: +ACTOR_STATE_DELETING/);
    for (const verb of ["suspend", "resume"]) {
      const { code, output } = await hands.ate(verb, "leaving");
      expect([verb, code > 0, output]).toEqual([verb, true, expect.stringContaining("being deleted")]);
    }
    expect((await hands.get("leaving")).message).toContain("being deleted");
    const patch = [
      "patch",
      "actor",
      "leaving",
      "-n",
      namespace,
      "--type=merge",
      "-p",
      '{"metadata":{"finalizers":null}}',
    ];
    expect((await hands.kubectl(patch)).code).toBe(0);
  });
});

describe("a snapshot on the node that is not what it was", { timeout: 60_000 }, () => {
  /** Asked twice and stored, then asked `more` times and saved on the node alone. */
  async function saved(name: string, more: number): Promise<void> {
    await hands.make(name, "good");
    await hands.count(name);
    expect(await hands.count(name)).toBe(2);
    await hands.suspend(name, "sync");
    for (let n = 0; n < more; n += 1) await hands.count(name);
    if (more > 0) await hands.suspend(name, "async");
  }

  it.concurrent("with other content than was stored: the stored one is used, and it is said", async () => {
    await saved("flipped", 0);
    await flip(await hands.imageDir("flipped", 1));
    expect(await hands.count("flipped")).toBe(3);
    const said =
      /Generation 1 is in the store: the copy on its node was damaged \(pages\.img has other content than was written, in pages \d+ to \d+\) and removed; the stored one is used/;
    expect(await hands.described("actor", "flipped", /Warning +SnapshotDamaged/)).toMatch(said);
  });

  it.concurrent("touched, but the same: it is used, and nothing is said", async () => {
    await saved("touched", 0);
    const dir = await hands.imageDir("touched", 1);
    await flip(dir);
    await flip(dir);
    expect(await hands.count("touched")).toBe(3);
    expect((await hands.kubectl(["describe", "actor", "touched"])).output).not.toContain("damaged");
  });

  it.concurrent("truncated and stored: the stored one is used", async () => {
    await saved("cut", 0);
    const dir = await hands.imageDir("cut", 1);
    for (const name of readdirSync(dir)) truncateSync(join(dir, name), 7);
    expect(await hands.count("cut")).toBe(3);
    await hands.described("actor", "cut", /the copy on its node was damaged \(\S+ has 7 bytes instead of \d+\)/);
  });

  it.concurrent("vanished and stored: the stored one is used", async () => {
    await saved("vanished", 0);
    rmSync(join(await hands.imageDir("vanished", 1), ".."), { recursive: true });
    expect(await hands.count("vanished")).toBe(3);
    await hands.described("actor", "vanished", /the copy on its node was damaged \(\S+ is missing\)/);
  });

  it.concurrent("truncated before it was stored: the one before it is used, and what is lost is said", async () => {
    await saved("rolled-back", 3);
    const dir = await hands.imageDir("rolled-back", 2);
    for (const name of readdirSync(dir)) truncateSync(join(dir, name), 7);
    expect(await hands.count("rolled-back")).toBe(3);
    const described = await hands.described("actor", "rolled-back", /Warning +SnapshotLost/);
    expect(described).toMatch(
      /Generation 2 is lost: its files on the node are damaged \(\S+ has 7 bytes instead of \d+\) and it was not in the store yet/,
    );
    expect((await hands.seen("rolled-back")).status?.crash?.message).toContain("generation 2 was lost");
  });

  it.concurrent(
    "truncated, and there is no other: nothing begins it anew but a person, and what is left is kept",
    async () => {
      await hands.make("alone", "good");
      await hands.count("alone");
      await hands.suspend("alone", "async");
      const dir = await hands.imageDir("alone", 1);
      for (const name of readdirSync(dir)) truncateSync(join(dir, name), 7);
      for (let wake = 0; wake < 2; wake += 1) {
        const { code, message, retryAfter } = await hands.get("alone");
        expect([code, retryAfter]).toEqual(["SNAPSHOT_DAMAGED", undefined]);
        expect(message).toMatch(
          /generation 1 of actor default\/alone is lost: .* has 7 bytes .*"kubectl ate resume alone --boot"/,
        );
      }
      await hands.described("actor", "alone", /SnapshotDamaged/);
      const refused = await hands.ate("resume", "alone");
      expect([refused.code > 0, refused.output]).toEqual([true, expect.stringContaining("resume alone --boot")]);
      const aside = join(dir, "../..", "1.unreadable", "image");
      // as soon as nobody reads it
      await eventually(
        () => {
          expect(readdirSync(aside).map((name) => statSync(join(aside, name)).size)).toContain(7);
        },
        { deadlineMs: 20_000 },
      );
      expect((await hands.ate("resume", "alone", "--boot")).code).toBe(0);
      expect(await hands.count("alone")).toBe(1);
      await hands.suspend("alone", "sync");
      await eventually(
        () => {
          expect(readdirSync(join(dir, "../.."))).toEqual(["2"]);
        },
        { deadlineMs: 10_000 },
      );
    },
  );

  it.concurrent("whose program never answers: it is given up after ten seconds, and a cold start goes", async () => {
    await hands.make("mute", "hasty");
    await hands.count("mute");
    await hands.get("mute", "POST", "/sicken");
    await hands.suspend("mute", "async");
    const { status, retryAfter } = await hands.get("mute");
    expect([status, retryAfter === undefined]).toEqual([503, false]);
    const described = await hands.described("actor", "mute", /Warning +FailedWake/, 30_000);
    expect(described).toMatch(
      /NotReady: actor default\/mute was not ready within 10 s: readyz GET :8080\/readyz answered 500: sick/,
    );
    expect((await hands.ate("resume", "mute", "--boot")).code).toBe(0);
    expect(await hands.count("mute")).toBe(1);
  });
});

describe("a store", { concurrent: false, timeout: 60_000 }, () => {
  it("that is gone: what is asked of it waits, is said, and succeeds when it is back", async () => {
    const { storeDir } = hands.whole.cluster;
    await hands.make("keeper", "stored");
    await hands.count("keeper");
    await rename(storeDir, `${storeDir}.away`);
    try {
      await hands.suspend("keeper", "async");
      await hands.described(
        "actor",
        "keeper",
        /Generation 1 is only on the node: upload to store default failed, next try in .*/,
      );
      expect(await hands.count("keeper")).toBe(2);
    } finally {
      await rename(`${storeDir}.away`, storeDir);
    }
    await hands.suspend("keeper", "sync");
  });

  it("of another cluster: the generation stays on the node, and it is said whose the store is", async () => {
    const { storeDir } = hands.whole.cluster;
    const marker = join(storeDir, "substrate-store.json");
    const own = readFileSync(marker);
    writeFileSync(marker, JSON.stringify({ clusterUid: "stranger" }));
    try {
      await endAtelet();
      await eventually(() => hands.count("keeper"), { deadlineMs: 20_000 });
      await hands.suspend("keeper", "async");
      await hands.described("actor", "keeper", /Generation \d+ is only on the node: .*belongs to cluster stranger/);
      expect(await hands.count("keeper")).toBe(4);
    } finally {
      writeFileSync(marker, own);
    }
    await hands.suspend("keeper", "sync");
  });

  /** Its supervisor starts another one, which opens its stores anew. */
  async function endAtelet(): Promise<void> {
    const lines = belongings(hands.whole.cluster.stateDir, hands.whole.cluster.id);
    const atelet = lines.find((line) => line.startsWith("process") && line.includes("atelet/src/main.ts"));
    process.kill(Number(/process (\d+)/.exec(atelet ?? "")?.[1]), "SIGKILL");
    await eventually(() => hands.described("actor", "keeper", "Ready"), { deadlineMs: 10_000 });
  }
});
