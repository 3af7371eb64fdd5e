import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ExecOptions } from "../sandbox.ts";
import { lastLoggedError } from "./command.ts";

export interface ExecCommand {
  runscPath: string;
  flags: readonly string[];
  /** For its log and the file with the pid that it has inside. */
  dir: string;
  id: string;
  options: ExecOptions;
  startWithinMs: number;
}

export interface StartedExec {
  /** As the sandbox counts them. */
  pid: number;
  /** The program's exit code; 128 and the signal's number when one ended it. */
  ended: Promise<number>;
}

const pollMs = 5;
/** The sandbox's id is found again in the name of the file that holds the pid. */
const pidFlag = /^--internal-pid-file=.*\/([0-9a-f]{32})-[0-9a-f]+\.pid$/;

/** The sandbox that a runsc command is an exec in; undefined for any other command. */
export function execSandbox(argv: readonly string[]): string | undefined {
  if (!argv.includes("exec")) return undefined;
  return argv.map((argument) => pidFlag.exec(argument)?.[1]).find((id) => id !== undefined);
}

/** Resolves when the program has begun. @throws SubstrateError INVALID when the sandbox has no such program */
export async function startExec(command: ExecCommand): Promise<StartedExec> {
  const { runscPath, flags, dir, id, options, startWithinMs } = command;
  const name = join(dir, `${id}-${randomBytes(6).toString("hex")}`);
  const pidFile = `${name}.pid`;
  const logPath = `${name}.log`;
  const { stdinFd, stdoutFd, stderrFd } = options.stdio;
  // A terminal makes signals of Ctrl-C and of a new size for the session that it controls: runsc passes them on. Without
  // one it gets a session of its own, so that Ctrl-C where the atelet was started is not the program's.
  const program = options.tty ? ["setsid", "--ctty", runscPath] : [runscPath];
  const child = spawn(
    program[0] ?? runscPath,
    [
      ...program.slice(1),
      ...flags,
      `--log=${logPath}`,
      "--log-format=json",
      "exec",
      `--internal-pid-file=${pidFile}`,
      ...(options.tty ? ["--env=TERM=xterm"] : []),
      id,
      ...options.command,
    ],
    {
      cwd: "/",
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
      stdio: [stdinFd, stdoutFd, stderrFd],
      detached: !options.tty,
    },
  );
  const client = { over: false };
  const exited = new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => {
      if (code === null) reject(new Error(`runsc exec was ended by ${signal ?? "a signal"}`));
      else resolve(code);
    });
  }).finally(() => {
    client.over = true;
  });
  exited.catch(() => undefined);
  const remove = (): Promise<unknown> => Promise.all([rm(pidFile, { force: true }), rm(logPath, { force: true })]);
  const endMs = performance.now() + startWithinMs;
  for (;;) {
    // in this order: a program that was quick has left its pid
    const gone = client.over;
    const pid = await readPid(pidFile);
    if (pid > 0) return { pid, ended: exited.finally(remove) };
    if (gone || performance.now() > endMs) {
      child.kill("SIGKILL");
      const said = gone ? await lastLoggedError(logPath) : `it did not begin within ${startWithinMs} ms`;
      await remove();
      throw new SubstrateError("INVALID", `cannot run "${options.command[0] ?? ""}" in it: ${reason(said)}`);
    }
    await sleep(pollMs);
  }
}

/** 0 while there is none. It vanishes with the end of a program that was quick. */
async function readPid(path: string): Promise<number> {
  try {
    return Number.parseInt(await readFile(path, "utf8"), 10) || 0;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return 0;
    throw error;
  }
}

/** runsc's chain of errors without what says nothing to the person who typed the command. */
function reason(said: string): string {
  const text = said.replace(/^.*error finding executable/, "there is no executable");
  return text === "" ? "runsc gave no reason" : text;
}
