import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Actor, actors, snapshots, templates } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { ActorState } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { controllerRevisions, events, type Secret, secrets } from "@substrate/lib/kube/types.ts";
import { eventually } from "../support/poll.ts";
import { condition, Fixture } from "./fixture.ts";

let fixture: Fixture;
beforeAll(async () => {
  fixture = await Fixture.start();
});
afterAll(async () => {
  await fixture.stop();
});

const container = {
  name: "main",
  image: "registry.example.com/app:1",
  ports: [{ name: "http", containerPort: 8080 }],
  readyz: { httpGet: { path: "/readyz", port: "http" } },
  resources: { limits: { cpu: "500m", memory: "128Mi" } },
};

async function secret(name: string, values: Record<string, string>): Promise<void> {
  const data = Object.fromEntries(
    Object.entries(values).map(([key, value]) => [key, Buffer.from(value).toString("base64")]),
  );
  await fixture.client.apply<Secret>(secrets, { metadata: { name, namespace: "test" }, data });
}

/** An operation that was accepted, ended. */
async function ended(name: string, answer: string): Promise<Actor> {
  const { operationId } = JSON.parse(answer) as { operationId: string };
  return fixture.until(
    name,
    ({ status }) => status?.lastOperation?.id === operationId && status.lastOperation.endTime !== undefined,
  );
}

const uidOf = (actor: Actor): string => actor.metadata.uid ?? "";
const starts = (actor: Actor) => fixture.atelet.starts.filter(({ uid }) => uid === uidOf(actor));
const isRunning = ({ status }: Actor): boolean => status?.state === "ACTOR_STATE_RUNNING";

/** Slept once, its generation in the store. */
async function asleep(actor: Actor): Promise<Actor> {
  await fixture.wake(actor);
  await ended(actor.metadata.name, await fixture.suspend(actor.metadata.name, { mode: "Sync" }));
  return fixture.until(actor.metadata.name, (now) => condition(now, "Durable")?.status === "True");
}

async function eventsOf(name: string, reason: string): Promise<string[]> {
  const { items } = await fixture.client.list(events, { namespace: "test" });
  return items
    .filter((event) => event.involvedObject.name === name && event.reason === reason)
    .map(({ message }) => message);
}

describe("environment", () => {
  const canary = "canary-7f3a9b5d";

  it("waits for a missing Secret, resolves it, and says when it has changed since", async () => {
    const token = { name: "TOKEN", valueFrom: { secretKeyRef: { name: "api", key: "token" } } };
    const env = [{ name: "LEVEL", value: "info" }, token];
    await fixture.apply("secretive", { containers: [{ ...container, env }] as never });
    await eventually(
      async () => {
        const template = await fixture.client.get(templates, "secretive", "test");
        expect(template?.status?.conditions?.[0]).toMatchObject({ status: "False", reason: "SecretMissing" });
        expect(template?.status?.conditions?.[0]?.message).toMatch(
          /variable TOKEN: Secret test\/api does not exist: create it with key "token", .*tried again at/,
        );
      },
      { deadlineMs: 20_000 },
    );
    await secret("api", { token: `${canary}-1` });
    // a change of the Template is tried at once
    await fixture.template("secretive", { containers: [{ ...container, env }] as never, wakeTimeout: "20s" });
    const actor = await fixture.actor("secretive", "secretive-a", { env: [{ name: "LEVEL", value: "debug" }] });
    const uid = uidOf(actor);
    await asleep(actor);
    expect(fixture.atelet.environments.get(uid)?.variables).toEqual([
      { name: "LEVEL", value: "debug" },
      { name: "TOKEN", value: `${canary}-1` },
    ]);
    await fixture.until("secretive-a", (now) => condition(now, "EnvOutdated")?.reason === "EnvCurrent");

    await secret("api", { token: `${canary}-2` });
    // looked at within a minute, or with the next change of the actor
    const outdated = await eventually(
      async () => {
        await fixture.client.mergePatch(actors, "secretive-a", "test", {
          metadata: { annotations: { at: String(Date.now()) } },
        });
        const now = await fixture.read("secretive-a");
        expect(condition(now, "EnvOutdated")?.status).toBe("True");
        return now;
      },
      { deadlineMs: 10_000 },
    );
    expect(condition(outdated, "Ready")?.status).toBe("True");
    // a restored image has the old one, a cold start the new one
    const before = fixture.atelet.actors.get(uid)?.envDigest;
    await fixture.wake(actor);
    expect(fixture.atelet.actors.get(uid)?.envDigest).toBe(before);
    await ended("secretive-a", await fixture.suspend("secretive-a", { mode: "Sync" }));
    await ended("secretive-a", await fixture.resume("secretive-a", { boot: true }));
    await fixture.until("secretive-a", (now) => condition(now, "EnvOutdated")?.status === "False");
    expect(fixture.atelet.environments.get(uid)?.variables[1]?.value).toBe(`${canary}-2`);

    // the key goes: nothing is started without it, and it is said before anybody asks
    await ended("secretive-a", await fixture.suspend("secretive-a"));
    await secret("api", {});
    await fixture.client.mergePatch(secrets, "api", "test", { data: { token: null } });
    await eventually(
      async () => {
        await fixture.client.mergePatch(actors, "secretive-a", "test", {
          metadata: { annotations: { at: String(Date.now()) } },
        });
        expect(condition(await fixture.read("secretive-a"), "Ready")).toMatchObject({
          reason: "SecretMissing",
          message: expect.stringContaining('Secret test/api has no key "token"') as string,
        });
      },
      { deadlineMs: 10_000 },
    );
    await expect(fixture.wake(actor)).rejects.toMatchObject({ code: "SECRET_MISSING" });
  });

  it("never lets a value into a status, an Event, a revision or a log", async () => {
    const texts = [
      JSON.stringify(await fixture.client.list(actors, { namespace: "test" })),
      JSON.stringify(await fixture.client.list(templates, { namespace: "test" })),
      JSON.stringify(await fixture.client.list(snapshots, { namespace: "test" })),
      JSON.stringify(await fixture.client.list(events, { namespace: "test" })),
      JSON.stringify(await fixture.client.list(controllerRevisions, { namespace: "test" })),
      fixture.log(),
    ];
    expect(
      texts.map((text) => text.includes("canary") || text.includes(Buffer.from(canary).toString("base64"))),
    ).toEqual(texts.map(() => false));
    expect(fixture.log()).toContain("secretive-a");
  });
});

describe("upgrade", () => {
  const withVolume = {
    containers: [{ ...container, volumeMounts: [{ name: "data", mountPath: "/data" }] }] as never,
    volumes: [{ name: "data", durableDir: {} }],
  };
  const newer = (spec: object) => ({ ...spec, containers: [{ ...container, args: ["--new"] }] }) as never;

  async function revision(templateName: string): Promise<string> {
    return (await fixture.client.get(templates, templateName, "test"))?.status?.revision ?? "";
  }

  it("OnNextResume keeps the old state as a tag, then starts the new revision cold, through a kill in between", async () => {
    await fixture.template("steady", { upgrade: "OnNextResume" });
    const before = await revision("steady");
    const actor = await asleep(await fixture.actor("steady", "steady-a"));
    await fixture.template("steady", newer({ upgrade: "OnNextResume" }));
    const after = await revision("steady");
    expect(after).not.toBe(before);
    // the node lets no local wake pass
    await eventually(
      () => {
        expect(fixture.atelet.upgradePending.get(uidOf(actor))).toBe(true);
      },
      { deadlineMs: 20_000 },
    );
    const told = await fixture.until("steady-a", (now) => condition(now, "Ready")?.message.includes(after) === true);
    expect(told.status).toMatchObject({ revision: before, generation: 1 });

    const gate = Promise.withResolvers<undefined>();
    fixture.atelet.tagGate = gate.promise;
    const first = fixture.wake(actor).catch((error: unknown) => error);
    await eventually(
      () => {
        expect(fixture.epochs("tag", actor)).toHaveLength(1);
      },
      { deadlineMs: 20_000 },
    );
    await fixture.stopOperator("SIGKILL");
    expect(await first).toBeInstanceOf(SubstrateError);
    expect(starts(actor)).toHaveLength(1);
    gate.resolve(undefined);
    await fixture.startOperator();
    await fixture.wake(actor);
    expect(starts(actor).at(-1)).toEqual({
      uid: uidOf(actor),
      revision: after,
      startFrom: { $case: "boot", value: true },
    });
    const kept = await fixture.client.get(snapshots, `steady-a-pre-${before}`, "test");
    expect(kept).toMatchObject({
      spec: { actorRef: { name: "steady-a" }, tag: `pre-${before}` },
      status: { storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED", revision: before, generation: 1 },
    });
    const running = await fixture.until("steady-a", (now) => isRunning(now) && now.status?.revision === after);
    expect(condition(running, "Ready")?.message).toBe("Answers requests");

    // the way back: by a person who may use the tag
    await ended("steady-a", await fixture.suspend("steady-a", { mode: "Sync" }));
    const back = ["--as", "jane", "--as-group", "system:authenticated"];
    const resume = { apiGroup: "subresources.substrate.run", resource: "actors/resume", verb: "create" };
    await fixture.allow("jane", "resume", resume);
    const name = `steady-a-pre-${before}`;
    await eventually(
      async () => {
        // at first the API server may not have read the right to resume
        await expect(fixture.resume("steady-a", { from: name }, ...back)).rejects.toThrow(
          /User "jane" may not use snapshots.*steady-a-pre-/,
        );
      },
      { deadlineMs: 20_000 },
    );
    await fixture.allow("jane", "use", { apiGroup: "substrate.run", resource: "snapshots", verb: "use" });
    const answer = await eventually(() => fixture.resume("steady-a", { from: name }, ...back), { deadlineMs: 20_000 });
    await ended("steady-a", answer);
    expect(starts(actor).at(-1)).toMatchObject({
      revision: before,
      startFrom: { $case: "tag", value: { name: `test/${name}` } },
    });
    // what an actor or a tag needs is kept, for as long as they do
    const revisions = await fixture.client.list(controllerRevisions, { namespace: "test" });
    expect(revisions.items.map(({ metadata }) => metadata.name)).toEqual(
      expect.arrayContaining([`steady-${before}`, `steady-${after}`]),
    );
  });

  it("Manual takes a new revision only by a cold start that a person asks for, with the same way back", async () => {
    await fixture.template("manual");
    const before = await revision("manual");
    const actor = await asleep(await fixture.actor("manual", "manual-a"));
    await fixture.template("manual", newer({}));
    const after = await revision("manual");
    await fixture.wake(actor);
    expect(starts(actor).at(-1)).toMatchObject({ revision: before, startFrom: undefined });
    await expect(fixture.resume("manual-a", { from: 1, boot: true })).rejects.toThrow(/exclude each other/);
    const refused = await ended("manual-a", await fixture.resume("manual-a", { boot: true }));
    expect(refused.status?.lastOperation).toMatchObject({ reason: "OPERATION_IN_PROGRESS" });
    await ended("manual-a", await fixture.suspend("manual-a", { mode: "Sync" }));
    await expect(fixture.resume("manual-a", { from: 7 })).rejects.toThrow(/no generation 7 to start from: there is 2/);
    await ended("manual-a", await fixture.resume("manual-a", { boot: true }));
    expect(starts(actor).at(-1)).toMatchObject({ revision: after, startFrom: { $case: "boot" } });
    expect(await fixture.client.get(snapshots, `manual-a-pre-${before}`, "test")).toMatchObject({
      status: { storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED", generation: 2 },
    });
    // started cold and crashed: what runs next is no older revision's
    fixture.atelet.change(uidOf(actor), {
      state: ActorState.ACTOR_STATE_CRASHED,
      crash: { message: "ended", timeUnixMs: BigInt(Date.now()) },
    });
    const crashed = await fixture.until("manual-a", ({ status }) => status?.state === "ACTOR_STATE_CRASHED");
    expect(condition(crashed, "Ready")?.message).toMatch(/starts it anew/);
    await fixture.wake(actor);
    expect(starts(actor).at(-1)).toMatchObject({ revision: after, startFrom: undefined });
  });

  it("refuses a revision that lacks a volume the actor has data in, and goes on with the old one", async () => {
    await fixture.template("holder", { ...withVolume, upgrade: "OnNextResume" });
    const before = await revision("holder");
    const actor = await asleep(await fixture.actor("holder", "holder-a"));
    await fixture.client.delete(templates, "holder", "test");
    await fixture.template("holder", { ...withVolume, upgrade: "OnNextResume" });
    await fixture.client.mergePatch(templates, "holder", "test", { spec: { containers: [container], volumes: null } });
    const lacks = /revision [0-9a-f]{10} of Template test\/holder lacks volume "data".*: add it to the Template again/;
    const told = await fixture.until("holder-a", (now) => lacks.test(condition(now, "Ready")?.message ?? ""));
    expect(condition(told, "Ready")).toMatchObject({ status: "True", reason: "Asleep" });
    await eventually(
      async () => {
        expect(await eventsOf("holder-a", "UpgradeRefused")).toEqual([expect.stringMatching(lacks)]);
      },
      { deadlineMs: 20_000 },
    );
    await fixture.wake(actor);
    expect(starts(actor).at(-1)).toMatchObject({ revision: before, startFrom: undefined });
    await ended("holder-a", await fixture.suspend("holder-a"));
    const boot = await ended("holder-a", await fixture.resume("holder-a", { boot: true }));
    expect(boot.status?.lastOperation).toMatchObject({ result: "Failed", reason: "UPGRADE_REFUSED" });
  });
});

describe("state Running", () => {
  it("keeps it running, more slowly after short lives, until it is in a crash loop", async () => {
    await fixture.template("service");
    await fixture.client.create(actors, {
      metadata: { name: "service-a", namespace: "test" },
      spec: { templateRef: { name: "service" }, state: "Running" },
    });
    const actor = await fixture.until("service-a", isRunning);
    await expect(fixture.suspend("service-a")).rejects.toThrow(
      /KEPT_RUNNING|kept running by spec.state: Running; set it to/,
    );
    const crash = (): { message: string; timeUnixMs: bigint } => ({
      message: "ended with code 3",
      timeUnixMs: BigInt(Date.now()),
    });
    const crashed = { state: ActorState.ACTOR_STATE_CRASHED };
    for (const count of [2, 3]) {
      fixture.atelet.change(uidOf(actor), { ...crashed, crash: crash() });
      await eventually(
        () => {
          expect(starts(actor)).toHaveLength(count);
        },
        { deadlineMs: 10_000 },
      );
      await fixture.until("service-a", isRunning);
    }
    const resumes = fixture.atelet.calls.filter(({ method, uid }) => method === "resume" && uid === uidOf(actor));
    const gaps = resumes.slice(1).map(({ atMs }, index) => atMs - (resumes[index]?.atMs ?? 0));
    expect(gaps[0]).toBeGreaterThan(900);
    expect(gaps[1]).toBeGreaterThan((gaps[0] ?? 0) + 500);

    const crashLoop = { generation: 0n, message: "three short lives: resume --boot", sinceUnixMs: BigInt(Date.now()) };
    fixture.atelet.change(uidOf(actor), { ...crashed, crash: crash(), crashLoop });
    const looping = await fixture.until("service-a", (now) => condition(now, "Ready")?.reason === "CrashLoop");
    expect(condition(looping, "Ready")).toMatchObject({ status: "False", message: crashLoop.message });
    // what was lost stays said, and a person ends the loop
    await ended("service-a", await fixture.resume("service-a", { boot: true }));
    await fixture.until("service-a", (now) => isRunning(now) && now.status?.crash === undefined);
    expect(starts(actor)).toHaveLength(4);
    expect(await eventsOf("service-a", "CrashLoop")).toHaveLength(1);
  });
});
