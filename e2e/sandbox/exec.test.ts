import { copyFile, mkdir, readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Descriptors } from "@substrate/atelet/exec/descriptors.ts";
import { type ExecRequest, type ExecSession } from "@substrate/atelet/exec/session.ts";
import { type ExecActor, ExecSessions } from "@substrate/atelet/exec/sessions.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { shellFiles } from "../programs/shell.ts";
import { eventually } from "../support/poll.ts";
import { openRig } from "./open-rig.ts";
import { answer, type Place, type SandboxRig } from "./rig.ts";

const uid = "u";
const log = createLogger("exec-test", "error");
let rig: SandboxRig;
let place: Place;
let sessions: ExecSessions;
let actor: ExecActor;

beforeAll(async () => {
  rig = await openRig();
  for (const file of await shellFiles()) {
    if (!("source" in file)) continue;
    const target = join(rig.dir, "rootfs", file.path);
    await mkdir(dirname(target), { recursive: true });
    await copyFile(file.source, target);
  }
  place = await rig.place("counter", { memoryMiB: 128 });
  place.spec.env = ["PATH=/bin"];
  await rig.start(place);
  sessions = new ExecSessions(rig.runtime, new Descriptors(), log);
  actor = {
    sandboxId: place.spec.id,
    name: "default/a",
    record: { actor: { uid } },
    resume: () => Promise.resolve(),
    route: () => ({ state: "RUNNING" }),
    noteActivity: () => undefined,
  };
});

afterAll(async () => {
  await rig.close();
});

interface Running {
  code: Promise<number>;
  session: Promise<ExecSession>;
  printed: { stdout: string; stderr: string };
  leave: AbortController;
}

function exec(command: string[], options: Partial<ExecRequest> = {}): Running {
  const printed = { stdout: "", stderr: "" };
  const leave = new AbortController();
  const begun = Promise.withResolvers<ExecSession>();
  const request = { command, tty: false, stdin: true, size: { columns: 80, rows: 24 }, ...options };
  const take = (name: keyof typeof printed) => (chunk: Buffer) => {
    printed[name] += chunk.toString();
    return Promise.resolve();
  };
  const client = { begun: begun.resolve, stdout: take("stdout"), stderr: take("stderr") };
  const code = sessions.run(actor, request, client, leave.signal);
  code.catch(begun.reject);
  begun.promise.catch(() => undefined);
  return { code, session: begun.promise, printed, leave };
}

/** Programs of the sandbox as it sees them. */
async function inside(): Promise<string[]> {
  const { code, printed } = exec(["sh", "-c", "for p in /proc/[0-9]*; do cat $p/cmdline; echo; done"]);
  await code;
  return printed.stdout.replaceAll("\0", " ").split("\n");
}

test("output, input and the exit code pass, large ones too, and a signal counts as the shell does", async () => {
  const both = exec(["sh", "-c", "cat; echo oops >&2; exit 3"]);
  const session = await both.session;
  const text = "0123456789abcdef".repeat(64 * 1024);
  for (let at = 0; at < text.length; at += 65_536) await session.write(Buffer.from(text.slice(at, at + 65_536)));
  await session.endInput();
  expect(await both.code).toBe(3);
  expect(both.printed.stdout === text).toBe(true);
  expect(both.printed.stderr).toBe("oops\n");
  expect(await exec(["sh", "-c", "kill -9 $$"]).code).toBe(137);
  expect(await exec(["cat"], { stdin: false }).code).toBe(0);
});

test("a program that is not there is said, not printed", async () => {
  const { code, printed } = exec(["nosuch"]);
  await expect(code).rejects.toMatchObject({
    code: "INVALID",
    message: 'cannot run "nosuch" in it: there is no executable "nosuch" in PATH [/bin]: no such file or directory',
  });
  expect(printed).toEqual({ stdout: "", stderr: "" });
});

test("a terminal has a size, echoes, tells of a new size and ends with Ctrl-C", async () => {
  const shell = exec(["sh", "-c", "trap 'stty size' WINCH; stty size; while :; do sleep 0.1; done"], {
    tty: true,
    size: { columns: 100, rows: 30 },
  });
  const session = await shell.session;
  const has = (text: string) =>
    eventually(
      () => {
        expect(shell.printed.stdout).toContain(text);
      },
      { deadlineMs: 10_000 },
    );
  await has("30 100\r\n");
  session.resize({ columns: 120, rows: 40 });
  await has("40 120\r\n");
  await session.write(Buffer.from("\x03"));
  await has("^C");
  expect(await shell.code).toBe(130);
});

test("the program and what it has started are killed when its client leaves or it is cut", async () => {
  const left = exec(["sh", "-c", "sleep 1001; true"]);
  await left.session;
  const cut = exec(["sh", "-c", "sleep 1002; true"]);
  await cut.session;
  await eventually(
    async () => {
      expect((await inside()).filter((line) => line.startsWith("sleep 100"))).toHaveLength(2);
    },
    { deadlineMs: 10_000 },
  );
  expect(await sessions.drain(uid, 1)).toBe(2);
  left.leave.abort();
  expect(await left.code).toBe(137);
  await sessions.cut(uid, "because");
  await expect(cut.code).rejects.toMatchObject({ code: "PROGRAM_EXITED", message: "because" });
  expect((await inside()).filter((line) => line.includes("sleep"))).toEqual([]);
  expect(await sessions.drain(uid, 1)).toBe(0);
});

test("a runtime that is started anew ends what nobody waits for, and leaves the actor alone", async () => {
  const lost = exec(["sh", "-c", "sleep 1003; true"]);
  await lost.session;
  await rig.newRuntime().start();
  await expect(lost.code).rejects.toThrow("runsc exec was ended by SIGKILL");
  expect((await inside()).filter((line) => line.includes("sleep"))).toEqual([]);
  expect(await readdir(join(rig.dir, "rt", "x"))).toEqual([]);
  expect(JSON.parse(await answer(place, "GET", "/"))).toMatchObject({ pid: 1 });
});

test("what an exec leaves running does not spoil the actor's image, and ends with the restore", async () => {
  const { id } = place.spec;
  const { code } = exec(["sh", "-c", "sleep 1004 & echo started"]);
  expect(await code).toBe(0);
  const imageDir = await rig.imageDir("with-daemon");
  await rig.runtime.pause(id);
  await rig.runtime.checkpoint(id, imageDir, { direct: false });
  await rig.runtime.delete(id);
  await rig.cgroups.remove(id);
  await rig.cgroups.create(id);
  await place.putAddress();
  await rig.runtime.restore(place.spec, { imageDir, direct: false, keepConnections: false });
  await answer(place, "GET", "/");
  expect((await inside()).filter((line) => line.startsWith("sleep 1004"))).toEqual([]);
});

test("what is run in a restored sandbox had the image's environment only", async () => {
  const imageDir = join(rig.dir, "image-environment");
  await mkdir(imageDir);
  await rig.runtime.pause(place.spec.id);
  await rig.runtime.checkpoint(place.spec.id, imageDir, { direct: false });
  await rig.runtime.delete(place.spec.id);
  place.spec.env = ["PATH=/bin", "TOKEN=canary"];
  await rig.runtime.restore(place.spec, { imageDir, direct: false, keepConnections: false });
  const { code, session, printed } = exec(["sh", "-c", "echo $TOKEN; cat"]);
  await (await session).endInput();
  expect(await code).toBe(0);
  expect(printed.stdout).toBe("canary\n");
});
