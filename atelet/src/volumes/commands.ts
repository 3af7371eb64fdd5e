import { execFile } from "node:child_process";
import { SubstrateError } from "@substrate/lib/errors.ts";

/** Of a command's own words, for a message. */
const MESSAGE_CHARACTERS = 400;

export interface CommandOptions {
  timeoutMs: number;
  signal?: AbortSignal;
  /** An exit code beside 0 with which its output counts. */
  alsoFine?: number;
}

/**
 * Runs a tool that every Linux image has (cp, du, tar); killed when its time is over or the signal comes. Throws
 * INTERNAL with what it said.
 */
export function runTool(tool: string, args: readonly string[], options: CommandOptions): Promise<string> {
  const { timeoutMs, signal, alsoFine } = options;
  return new Promise((resolve, reject) => {
    execFile(
      tool,
      args,
      {
        timeout: timeoutMs,
        killSignal: "SIGKILL",
        env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
        ...(signal && { signal }),
      },
      (error, stdout, stderr) => {
        if (error === null || (alsoFine !== undefined && error.code === alsoFine)) {
          resolve(stdout);
          return;
        }
        const said = stderr.trim().slice(0, MESSAGE_CHARACTERS);
        reject(
          new SubstrateError("INTERNAL", `${tool} failed: ${said === "" ? error.message : said}`, { cause: error }),
        );
      },
    );
  });
}
