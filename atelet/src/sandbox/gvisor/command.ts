import { constants } from "node:os";
import { readFile } from "node:fs/promises";
import { type Child, type ChildExit, type Children } from "./children.ts";

/** Where a sandbox's stdout and stderr go: file descriptors that runsc hands to the sandbox. */
export interface SandboxStdio {
  stdoutFd: number;
  stderrFd: number;
}

export interface RunscOptions {
  timeoutMs: number;
  /** Given for commands that leave a sandbox behind; without it the command's own output is captured. */
  stdio?: SandboxStdio;
  /** Absolute; the file system's root if absent. */
  cwd?: string;
  /** Flags before the subcommand that only this call needs. */
  flags?: readonly string[];
}

/** A runsc command that failed or did not end in time; the message holds what runsc said. */
class RunscError extends Error {
  override readonly name = "RunscError";
  readonly exitCode: number | undefined;
  readonly timedOut: boolean;

  constructor(message: string, exitCode: number | undefined, timedOut: boolean) {
    super(message);
    this.exitCode = exitCode;
    this.timedOut = timedOut;
  }
}

/** Characters of runsc's own words in an error message. */
const messageLimit = 400;

/** The first line, shortened: a failed restore comes with goroutine traces of many kilobytes. */
function brief(text: string): string {
  const line = text.split("\n", 1)[0] ?? "";
  return line.length > messageLimit ? `${line.slice(0, messageLimit)}…` : line;
}

/** The newest error in runsc's JSON log: commands that hand their stderr to the sandbox say it only there. */
export async function lastLoggedError(logPath: string): Promise<string> {
  const lines = (await readFile(logPath, "utf8")).trimEnd().split("\n");
  for (const line of lines.reverse()) {
    if (!line.startsWith("{")) continue;
    const entry = JSON.parse(line) as { level?: string; msg?: string };
    if (entry.level === "error" || entry.level === "fatal") return entry.msg ?? "";
  }
  return "";
}

/**
 * Runs one runsc command to its end. A command that is still there after `timeoutMs` is killed.
 * @param logPath runsc's log for this sandbox, appended to.
 * @returns what the command wrote to stdout, empty with `stdio`.
 * @throws RunscError
 */
export async function runsc(
  children: Children,
  runscPath: string,
  logPath: string,
  flags: readonly string[],
  subcommand: readonly string[],
  options: RunscOptions,
): Promise<string> {
  const { stdio, timeoutMs } = options;
  const child = started(children, runscPath, {
    args: [...flags, `--log=${logPath}`, "--log-format=json", ...(options.flags ?? []), ...subcommand],
    cwd: options.cwd ?? "/",
    stdio,
  });
  const limit = { passed: false };
  const timer = setTimeout(() => {
    limit.passed = true;
    process.kill(child.pid, "SIGKILL");
  }, timeoutMs);
  const exit = await child.ended;
  clearTimeout(timer);
  if (exit.exitCode === 0) return exit.stdout.trim();
  const name = `runsc ${subcommand[0] ?? ""}`;
  const how = limit.passed ? `did not end within ${timeoutMs} ms and was killed` : `failed (${ending(exit)})`;
  let said: string;
  try {
    said = stdio === undefined ? exit.stderr.trim() : await lastLoggedError(logPath);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new RunscError(`${name} ${how}; its log is unreadable: ${why}`, exit.exitCode, limit.passed);
  }
  throw new RunscError(`${name} ${how}${said === "" ? "" : `: ${brief(said)}`}`, exit.exitCode, limit.passed);
}

function started(
  children: Children,
  program: string,
  { args, cwd, stdio }: { args: readonly string[]; cwd: string; stdio: SandboxStdio | undefined },
): Child {
  try {
    // short-lived and with nothing to do at once: a second thread of Go only costs. Sandbox and file server don't get it.
    const env = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", GOMAXPROCS: "1" };
    return children.start({ program, args, cwd, env, ...(stdio && { output: stdio }) });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new RunscError(`cannot start ${program}: ${why}`, undefined, false);
  }
}

function ending({ exitCode, signal }: ChildExit): string {
  if (exitCode !== undefined) return `exit code ${exitCode}`;
  return Object.entries(constants.signals).find(([, number]) => number === signal)?.[0] ?? "signal";
}
