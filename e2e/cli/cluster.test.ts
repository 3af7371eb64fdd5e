import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { renderExample } from "@substrate/examples/render.ts";
import { StoryContext } from "@substrate/local/story/context.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildShellCounter } from "../programs/shell.ts";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { eventually } from "../support/poll.ts";

let whole: TestCluster;
let story: StoryContext;
let folder: string;

beforeAll(async () => {
  whole = await startTestCluster();
  story = await StoryContext.create(whole.cluster);
  folder = join(whole.cluster.stateDir, "copies");
  mkdirSync(folder);
  const { reference } = await buildShellCounter(join(folder, "image"));
  const manifest = join(folder, "counter.yaml");
  const rendered = await renderExample("counter", { image: reference });
  const policy = "  drainTimeout: 1s\n  snapshots:\n    history: 3\n";
  writeFileSync(manifest, rendered.replace("  snapshots:\n", policy) + fragile(reference));
  await story.kubectl("apply", "-f", manifest);
  await story.kubectl("wait", "--for=condition=Ready", "template/counter", "template/fragile", "--timeout=60s");
});

/** Ends at its start where its volume has a file `bad`. */
const fragile = (image: string): string => `---
apiVersion: substrate.run/v1alpha1
kind: Template
metadata: { name: fragile }
spec:
  containers:
    - name: app
      image: ${image}
      command: [/bin/sh, -c, "if [ -e /data/bad ]; then echo out of luck; exit 3; fi; exec /bin/counter"]
      ports: [{ name: http, containerPort: 8080 }]
      readyz: { httpGet: { path: /readyz, port: 8080 } }
      resources: { limits: { cpu: "1", memory: 64Mi } }
      volumeMounts: [{ name: data, mountPath: /data }]
  volumes: [{ name: data, durableDir: { sizeLimit: 10Mi } }]
  snapshots: { store: default, history: 3, durability: Sync }
---
apiVersion: substrate.run/v1alpha1
kind: Actor
metadata: { name: fragile }
spec: { templateRef: { name: fragile } }
`;

afterAll(async () => {
  await story.close();
  await whole.stop();
});

const ate = (...args: string[]): Promise<{ code: number; output: string }> => story.tryKubectl("ate", ...args);

test("exec wakes a sleeping actor and passes output and exit code on", async () => {
  const { code, output } = await ate(
    "exec",
    "counter",
    "--",
    "sh",
    "-c",
    "cat /run/ate/actor-name; echo err >&2; exit 7",
  );
  expect([code, output]).toEqual([7, expect.stringMatching(/^counter\n?err\n$/)]);
  expect((await story.actor()).status?.state).toBe("ACTOR_STATE_RUNNING");
});

test("what cannot be run is said with the actor's name", async () => {
  expect(await ate("exec", "counter", "--", "nosuch")).toEqual({
    code: 1,
    output:
      'error: actor default/counter: cannot run "nosuch" in it: there is no executable "nosuch" in PATH [/usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin]: no such file or directory (INVALID)\n' +
      "only programs of the actor's own image can be run in it\n",
  });
  const missing = await ate("exec", "countr", "--", "ls");
  expect(missing).toMatchObject({ code: 3, output: expect.stringContaining("did you mean counter?") as string });
});

test("files and folders go in and come back the same", async () => {
  const seed = join(folder, "seed");
  mkdirSync(join(seed, "below"), { recursive: true });
  const content = "0123456789abcdef".repeat(200_000);
  writeFileSync(join(seed, "below", "large"), content);
  writeFileSync(join(seed, "small"), "x");
  expect(await ate("cp", seed, "counter:/tmp/")).toMatchObject({ code: 0 });
  expect(await ate("cp", "counter:/tmp/seed", join(folder, "back"))).toEqual({
    code: 0,
    output: `copied 2 files from counter:/tmp/seed to ${join(folder, "back")}\n`,
  });
  expect(readFileSync(join(folder, "back", "below", "large"), "utf8") === content).toBe(true);
  const nowhere = await ate("cp", "counter:/nowhere", folder);
  expect(nowhere.code).toBe(1);
  expect(nowhere.output).toContain("nowhere: Cannot stat: No such file or directory");
});

test("a suspend waits for a session, is refused while it lasts, and cuts it by force", async () => {
  const session = ate("exec", "counter", "--", "sleep", "1000");
  await eventually(
    async () => {
      expect((await ate("exec", "counter", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline")).output).toContain("sleep");
    },
    { deadlineMs: 10_000 },
  );
  const refused = await ate("suspend", "counter");
  expect(refused.code).toBe(1);
  expect(refused.output).toContain("REQUESTS_OPEN");
  expect((await ate("suspend", "counter", "--force")).code).toBe(0);
  const ended = await session;
  expect(ended.code).toBe(1);
  expect(ended.output).toContain("its actor was suspended by force");
  const { memory } = await story.count();
  expect(memory).toBeGreaterThan(0);
});

test("describe and top show what the actor is, did and uses", async () => {
  const { output } = await ate("describe", "counter");
  expect(output).toMatch(/^Name: +counter$/m);
  expect(output).toMatch(/^State: +RUNNING$/m);
  expect(output).toMatch(/Operations:\n +WHEN +TYPE +RESULT +TOOK +PHASES\n.* Resume +Succeeded .*restore /);
  expect(output).toMatch(/GENERATION +STORAGE +FIDELITY +SIZE/);
  const top = await ate("top");
  expect(top.output).toMatch(/^counter +RUNNING +[\d.]+MiB\/[\d.]+MiB +\d+m\/\d+m +[\d.]+MiB/m);
  const lines = (await ate("top", "counter")).output.trim().split("\n");
  expect(lines).toEqual([expect.stringMatching(/^NAME /), expect.stringMatching(/^counter /)]);
  expect(await ate("top", "nobody")).toMatchObject({ code: 3 });
  expect((await ate("top", "nodes")).output).toMatch(/ yes +1 +1 +[\d.]+ ?GiB/);
});

test("a tag is stored, and a fork begins with its state", async () => {
  const before = await story.count();
  expect(await ate("tag", "counter", "here")).toMatchObject({
    code: 0,
    output: expect.stringContaining("snapshot default/counter-here is stored: tag here of actor counter") as string,
  });
  expect(await ate("fork", "counter-here", "copy")).toMatchObject({ code: 0 });
  const copy = await ate("exec", "copy", "--", "cat", "/run/ate/actor-name");
  expect(copy).toMatchObject({ code: 0, output: expect.stringContaining("copy") as string });
  expect((await ate("describe", "counter")).output).toMatch(/here +COMPLETED/);
  expect((await story.count()).memory).toBe(before.memory + 1);
  expect((await ate("fork", "copi", "x")).output).toContain("there is neither a snapshot nor an actor copi");
});

test("doctor finds nothing here", async () => {
  const { code, output } = await ate("doctor");
  expect(output).toContain("0 problems, 0 warnings");
  expect(code).toBe(0);
});

test("a suspend saves what it is told, and a resume starts from what it is told", async () => {
  await ate("exec", "fragile", "--", "sh", "-c", "echo one >/data/file");
  expect((await ate("suspend", "fragile")).output).toMatch(/ suspended: fragile-1, COMPLETED \(/);
  await ate("exec", "fragile", "--", "sh", "-c", "echo two >/data/file");
  expect((await ate("resume", "fragile", "--from", "1")).output).toContain("can be chosen only while it sleeps");
  expect((await ate("suspend", "fragile", "--fidelity", "Data")).output).toMatch(/fragile-2, COMPLETED, Data only \(/);
  expect(await ate("resume", "fragile", "--from", "9")).toMatchObject({
    code: 2,
    output: expect.stringContaining("actor default/fragile: it has no generation 9") as string,
  });
  expect(await ate("resume", "fragile", "--from", "nosuch")).toMatchObject({
    code: 3,
    output: expect.stringContaining("there is no tag nosuch in namespace default\nactor fragile has none") as string,
  });
  expect((await ate("resume", "fragile", "--boot")).output).toContain("actor default/fragile resumed");
  expect((await ate("exec", "fragile", "--", "cat", "/data/file")).output).toBe("two\n");
  await ate("suspend", "fragile", "--mode", "async");
  expect(await ate("resume", "fragile", "--from", "fragile-1")).toMatchObject({ code: 0 });
  expect((await ate("exec", "fragile", "--", "cat", "/data/file")).output).toBe("one\n");
});

test("a fork of an actor tags it first, and says so; the tag is one to go back to", async () => {
  const forked = await ate("fork", "fragile", "twin", "--no-wait");
  expect(forked.output).toContain("actor fragile is tagged first: snapshot fragile-fork-twin\n");
  expect((await ate("fork", "fragile", "twin")).output).toContain("actor default/twin exists already");
  await ate("suspend", "fragile");
  expect(await ate("resume", "fragile", "--from", "fork-twin")).toMatchObject({ code: 0 });
});

test("a program that exec left behind in a session of its own harms no snapshot", async () => {
  await ate("exec", "fragile", "--", "sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 &");
  const programs = async (): Promise<string> =>
    (await ate("exec", "fragile", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline")).output;
  expect(await programs()).toContain("sleep");
  expect(await ate("suspend", "fragile")).toMatchObject({ code: 0 });
  expect(await programs()).not.toContain("sleep");
});

test("an actor in a crash loop says what it is and the ways out, whatever is asked of it", async () => {
  await ate("exec", "fragile", "--", "sh", "-c", "echo >/data/bad");
  expect(await ate("suspend", "fragile", "--fidelity", "data")).toMatchObject({ code: 0 });
  const loop = /CRASH_LOOP/;
  await eventually(
    async () => {
      expect((await ate("resume", "fragile")).output).toMatch(loop);
    },
    { deadlineMs: 15_000 },
  );
  expect((await ate("exec", "fragile", "--", "ls")).output).toMatch(loop);
  expect((await ate("suspend", "fragile")).output).toContain("it is not Ready (CrashLoop)");
  const { output } = await ate("describe", "fragile");
  expect(output).toMatch(/^State: .*\nReady: +False, CrashLoop: it ended 3 times in a row/m);
  expect(output).toMatch(/ {4}kubectl ate resume fragile -n default --from \d+\n/);
  expect(output).toContain("    kubectl ate resume fragile -n default --from fork-twin\n");
  expect((await ate("doctor")).output).toMatch(
    /PROBLEM {2}actor default\/fragile is not Ready \(CrashLoop\): it ended 3 /,
  );
  expect(await ate("resume", "fragile", "--from", "fork-twin")).toMatchObject({ code: 0 });
  expect((await ate("exec", "fragile", "--", "cat", "/data/file")).output).toBe("one\n");
});

test("every verb names an actor that is missing, and those that are there", async () => {
  const lines = [
    ["get", "nosuch"],
    ["describe", "nosuch"],
    ["suspend", "nosuch"],
    ["resume", "nosuch", "--from", "x"],
    ["log", "nosuch"],
    ["tag", "nosuch", "x"],
    ["fork", "nosuch", "x"],
    ["proxy", "nosuch"],
    ["cp", "nosuch:/x", "."],
  ];
  const answers = await Promise.all(lines.map(async (words) => ({ words, ...(await ate(...words)) })));
  const there = /(no actor|nor an actor) nosuch in namespace default\n(it has copy, counter|its tags are )/;
  for (const { words, code, output } of answers) {
    expect([words, code, output]).toEqual([words, 3, expect.stringMatching(there)]);
  }
});

test("a user without rights is told which, with commands that give them", async () => {
  const config = join(folder, "kubeconfig");
  writeFileSync(config, readFileSync(whole.cluster.kubeconfig), { mode: 0o600 });
  await story.kubectl("create", "serviceaccount", "nobody");
  const token = (await story.kubectl("create", "token", "nobody")).trim();
  const here = ["--kubeconfig", config, "config"];
  await story.kubectl(...here, "set-credentials", "nobody", `--token=${token}`);
  await story.kubectl(...here, "set-context", "--current", "--user=nobody");
  const asNobody = (...words: string[]): ReturnType<typeof ate> => ate(...words, "--kubeconfig", config);
  for (const words of [
    ["get", "counter"],
    ["suspend", "counter"],
    ["log", "counter"],
    ["tag", "counter", "x"],
  ]) {
    const { code, output } = await asNobody(...words);
    expect([words, code, output]).toEqual([
      words,
      4,
      expect.stringMatching(/^error: actor default\/counter: .*\nthe user needs the verb "get" on /),
    ]);
  }
  const { code, output } = await asNobody("doctor");
  expect([code, output]).toEqual([
    0,
    expect.stringContaining('user "nobody" may not run these in namespace default: get,'),
  ]);
  const hint = (await asNobody("log", "counter")).output.split("\n").slice(2, 4).join("\n");
  const give = hint.replace("--user=USER", "--serviceaccount=default:nobody");
  execFileSync("sh", ["-ec", give.replaceAll("kubectl ", `${whole.cluster.tools.kubectl} `)], {
    env: { PATH: "/usr/bin:/bin", KUBECONFIG: whole.cluster.kubeconfig, HOME: folder },
  });
  await eventually(
    async () => {
      expect(await asNobody("log", "counter", "--tail", "1")).toMatchObject({ code: 0 });
    },
    { deadlineMs: 10_000 },
  );
});

/** What each shell is made to say for "kubectl-ate exec c" by the script that it has read. */
const asked = {
  bash: "COMP_WORDS=(kubectl-ate exec c) COMP_CWORD=2; _kubectl_ate; printf '%s\\n' \"${COMPREPLY[@]}\"",
  zsh: "compadd() { print -l -- ${(P)2} }; words=(kubectl-ate exec c) CURRENT=3; _kubectl-ate",
  fish: "complete -C 'kubectl-ate exec c'",
};

test.each(Object.entries(asked))("%s completes names of actors, where it is installed", async (shell, question) => {
  const script = await story.kubectl("ate", "completion", shell);
  if (!existsSync(`/usr/bin/${shell}`)) return;
  const before = shell === "zsh" ? "compdef() { }\n" : "";
  const output = execFileSync(`/usr/bin/${shell}`, ["-c", `${before}${script}\n${question}`], {
    env: {
      PATH: `${whole.cluster.stateDir}/bin:/usr/local/bin:/usr/bin:/bin`,
      KUBECONFIG: whole.cluster.kubeconfig,
      HOME: folder,
    },
  });
  expect(output.toString()).toBe("copy\ncounter\n");
});

test("kubectl completes names by the plugin", async () => {
  expect((await story.tryKubectl("__complete", "ate", "exec", "c")).output).toContain("copy\ncounter\n:4\n");
});

test("doctor names what is broken, and what to do", async () => {
  const { cluster } = whole;
  const store = cluster.storeDir;
  renameSync(store, `${store}.away`);
  try {
    await story.count();
    await ate("suspend", "counter");
    await eventually(
      async () => {
        expect((await ate("doctor")).output).toMatch(
          /PROBLEM {2}actor default\/counter is not saved in its store: .*\(StoreUnavailable\)\n +it is tried again by itself/,
        );
      },
      { deadlineMs: 15_000 },
    );
    expect((await ate("describe", "counter")).output).toMatch(
      /^Attention:\n +Generation \d+ is only on the node: .*StoreUnavailable/m,
    );
  } finally {
    renameSync(`${store}.away`, store);
  }
  await cluster.client.request(
    "DELETE",
    "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.subresources.substrate.run",
  );
  expect(await ate("doctor")).toMatchObject({
    code: 1,
    output: expect.stringContaining("v1alpha1.subresources.substrate.run is missing") as string,
  });
  await cluster.hold("operator");
  const away = await ate("doctor");
  expect(away.output).toContain(
    "PROBLEM  the operator has ended and given its Lease substrate-system/substrate-operator back",
  );
  await cluster.hold("supervisor");
  expect((await ate("doctor")).output).toContain(
    `PROBLEM  the atelet of node ${cluster.nodeName} has ended and given its Lease`,
  );
});
