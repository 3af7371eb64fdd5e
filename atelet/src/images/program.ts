import { execFile } from "node:child_process";

/** A tool ended with an error, or did not end in time. */
export class ProgramError extends Error {
  /** What it wrote to stderr, shortened to its last lines. */
  readonly stderr: string;
  readonly timedOut: boolean;

  constructor(program: string, stderr: string, timedOut: boolean, cause: Error) {
    super(`${program}: ${timedOut ? "not done in time" : stderr || cause.message}`, { cause });
    this.stderr = stderr;
    this.timedOut = timedOut;
  }
}

const maxOutputBytes = 16 << 20;
const shownLines = 4;

/**
 * Runs a tool and returns its stdout; kills it after `timeoutMs`. Throws ProgramError.
 *
 * @param options.cwd absolute.
 * @param options.env besides this process's own.
 */
export function runProgram(
  path: string,
  args: readonly string[],
  options: { timeoutMs: number; cwd?: string; env?: Readonly<Record<string, string>> },
): Promise<string> {
  return new Promise((resolve, reject) => {
    const settings = {
      timeout: options.timeoutMs,
      killSignal: "SIGKILL" as const,
      maxBuffer: maxOutputBytes,
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    };
    const variables = Object.entries(options.env ?? {}).map(([name, value]) => `${name}=${value}`);
    // env(1) adds to the environment, which only config.ts reads
    const [program, all] = variables.length === 0 ? [path, args] : ["/usr/bin/env", [...variables, path, ...args]];
    execFile(program, all, settings, (error, stdout, stderr) => {
      if (!error) {
        resolve(stdout);
        return;
      }
      const lines = stderr.trim().split("\n").slice(-shownLines).join("; ");
      reject(new ProgramError(`${path} ${args[0] ?? ""}`, lines, error.killed === true, error));
    });
  });
}
