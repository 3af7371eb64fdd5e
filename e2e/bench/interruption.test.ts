import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { StateFolder } from "@substrate/local/state-folder.ts";
import { afterEach, beforeEach, expect, it } from "vitest";
import { belongings } from "../support/leftovers.ts";
import { eventually } from "../support/poll.ts";

const READY_MS = 120_000;

let folder: string;
let bench: ChildProcess;
let output: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "sub-"));
  output = "";
  const args = [join(import.meta.dirname, "main.ts"), "burnin", "--users", "1", "--minutes", "5"];
  // as the leader of a process group, which a terminal's Ctrl-C goes to
  bench = spawn(process.execPath, [...args, "--folder", folder], { stdio: ["ignore", "pipe", "pipe"], detached: true });
  for (const stream of [bench.stdout, bench.stderr])
    stream?.on("data", (chunk: Buffer) => (output += chunk.toString()));
});

afterEach(async () => {
  await interrupt("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

/** Resolves with the exit code. */
async function interrupt(signal: NodeJS.Signals): Promise<number | null> {
  if (bench.exitCode === null && bench.signalCode === null) {
    const ended = once(bench, "close");
    process.kill(-(bench.pid ?? 0), signal);
    await ended;
  }
  return bench.exitCode;
}

/** The folders of the cluster and of the raw sandboxes. */
async function folders(): Promise<string[]> {
  return eventually(
    () => {
      const [, ...found] = /^measuring in (\S+) and (\S+)$/m.exec(output) ?? [];
      if (found.length === 0) throw new Error(`the benchmark has not said where it is:\n${output}`);
      return found;
    },
    { deadlineMs: READY_MS },
  );
}

it("regression: Ctrl-C left the cluster, sandboxes and folders; a benchmark that is interrupted leaves nothing", async () => {
  const [stateDir = "", rigDir = ""] = await folders();
  await eventually(
    () => {
      if (!belongings(rigDir, "").some((line) => line.startsWith("process")))
        throw new Error(`no raw sandbox:\n${output}`);
    },
    { deadlineMs: READY_MS },
  );
  expect(await interrupt("SIGINT"), output).toBe(130);
  expect(output).toMatch(/\ngiven up \(SIGINT\); nothing of it is left\n$/);
  expect([stateDir, rigDir].filter((path) => existsSync(path))).toEqual([]);
  const state = StateFolder.open(stateDir);
  const { id } = state;
  state.close();
  rmSync(stateDir, { recursive: true });
  expect([...belongings(stateDir, id), ...belongings(rigDir, "")]).toEqual([]);
});
