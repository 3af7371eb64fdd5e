import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
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
  writeFileSync(manifest, rendered.replace("  snapshots:\n", "  drainTimeout: 1s\n  snapshots:\n"));
  await story.kubectl("apply", "-f", manifest);
  await story.kubectl("wait", "--for=condition=Ready", "template/counter", "--timeout=60s");
});

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

test("doctor finds nothing here, and names complete", async () => {
  const { code, output } = await ate("doctor");
  expect(output).toContain("0 problems, 0 warnings");
  expect(code).toBe(0);
  expect((await story.tryKubectl("ate", "__complete", "exec", "c")).output).toBe("copy\ncounter\n:4\n");
});
