import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";

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

/** Bytes of captured output kept: an error of runsc is one line, a flood would only fill memory. */
const captureLimit = 16 * 1024;

/** Characters of runsc's own words in an error message. */
const messageLimit = 400;

function capture(stream: NodeJS.ReadableStream | null): () => string {
  let text = "";
  stream?.setEncoding("utf8");
  stream?.on("data", (chunk: string) => {
    if (text.length < captureLimit) text += chunk.slice(0, captureLimit - text.length);
  });
  return () => text.trim();
}

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
export function runsc(
  runscPath: string,
  logPath: string,
  flags: readonly string[],
  subcommand: readonly string[],
  options: RunscOptions,
): Promise<string> {
  const { stdio, timeoutMs } = options;
  const argv = [...flags, `--log=${logPath}`, "--log-format=json", ...(options.flags ?? []), ...subcommand];
  return new Promise((resolve, reject) => {
    const child = spawn(runscPath, argv, {
      cwd: options.cwd ?? "/",
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
      stdio: ["ignore", stdio?.stdoutFd ?? "pipe", stdio?.stderrFd ?? "pipe"],
    });
    const stdout = capture(child.stdout);
    const stderr = capture(child.stderr);
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      child.kill("SIGKILL");
    }, timeoutMs);
    child.once("error", (error) => {
      clearTimeout(timer);
      reject(new RunscError(`cannot start ${runscPath}: ${error.message}`, undefined, false));
    });
    // "close" comes after the pipes' end; with stdio of the sandbox there are no pipes
    child.once("close", (code, signal) => {
      clearTimeout(timer);
      if (code === 0) {
        resolve(stdout());
        return;
      }
      const name = `runsc ${subcommand[0] ?? ""}`;
      const how = timedOut
        ? `did not end within ${timeoutMs} ms and was killed`
        : `failed (${code === null ? (signal ?? "signal") : `exit code ${code}`})`;
      const said = stdio === undefined ? Promise.resolve(stderr()) : lastLoggedError(logPath);
      said.then(
        (text) => {
          reject(new RunscError(`${name} ${how}${text === "" ? "" : `: ${brief(text)}`}`, code ?? undefined, timedOut));
        },
        (error: unknown) => {
          const why = error instanceof Error ? error.message : String(error);
          reject(new RunscError(`${name} ${how}; its log is unreadable: ${why}`, code ?? undefined, timedOut));
        },
      );
    });
  });
}
