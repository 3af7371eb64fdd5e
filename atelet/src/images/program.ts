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
 */
export function runProgram(
  path: string,
  args: readonly string[],
  options: { timeoutMs: number; cwd?: string },
): Promise<string> {
  return new Promise((resolve, reject) => {
    const settings = {
      timeout: options.timeoutMs,
      killSignal: "SIGKILL" as const,
      maxBuffer: maxOutputBytes,
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    };
    execFile(path, args, settings, (error, stdout, stderr) => {
      if (!error) {
        resolve(stdout);
        return;
      }
      const lines = stderr.trim().split("\n").slice(-shownLines).join("; ");
      reject(new ProgramError(`${path} ${args[0] ?? ""}`, lines, error.killed === true, error));
    });
  });
}
