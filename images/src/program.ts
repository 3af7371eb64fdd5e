import { execFile } from "node:child_process";
import { programEnvironment } from "./config.ts";

const maxOutputBytes = 64 * 1024 * 1024;
const shownLines = 6;

export interface ProgramOptions {
  /** Default 5 minutes; then it is killed. */
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
  /** Where the program comes from, for whoever lacks it. */
  fix?: string;
  /** Where it runs; default: where this process does. */
  cwd?: string | undefined;
}

/**
 * Standard output of a program.
 * @throws with its last words if it ends with another code than 0, does not end in time or isn't there.
 */
export async function run(program: string, args: readonly string[], options: ProgramOptions = {}): Promise<string> {
  return (await outputBytes(program, args, options)).toString();
}

/** As `run`, for output that is no text. */
export function outputBytes(program: string, args: readonly string[], options: ProgramOptions = {}): Promise<Buffer> {
  const { timeoutMs = 300_000, signal, fix, cwd } = options;
  const settings = {
    timeout: timeoutMs,
    killSignal: "SIGKILL" as const,
    maxBuffer: maxOutputBytes,
    env: programEnvironment(),
    encoding: "buffer" as const,
    ...(signal === undefined ? {} : { signal }),
    ...(cwd === undefined ? {} : { cwd }),
  };
  return new Promise((resolve, reject) => {
    execFile(program, args, settings, (error, stdout, stderr) => {
      if (!error) {
        resolve(stdout);
        return;
      }
      const what = [program, ...args.slice(0, 3)].join(" ");
      if (error.code === "ENOENT") {
        reject(new Error(`${program} is not on PATH${fix === undefined ? "" : `: ${fix}`}`, { cause: error }));
        return;
      }
      const words = stderr.toString().trim().split("\n").slice(-shownLines).join("\n");
      const how = error.killed === true ? `did not end within ${timeoutMs / 1000} s` : words || error.message;
      reject(new Error(`${what} … failed: ${how}`, { cause: error }));
    });
  });
}
