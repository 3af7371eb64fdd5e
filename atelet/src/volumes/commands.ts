import { spawn } from "node:child_process";
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
 * Runs a tool that every Linux image has (cp, du, tar); killed when its time is over or the signal comes. It may
 * complain of each of a million files: only its first words are kept. Throws INTERNAL with them.
 */
export function runTool(tool: string, args: readonly string[], options: CommandOptions): Promise<string> {
  const { timeoutMs, signal, alsoFine } = options;
  return new Promise((resolve, reject) => {
    const child = spawn(tool, args, {
      stdio: ["ignore", "pipe", "pipe"],
      timeout: timeoutMs,
      killSignal: "SIGKILL",
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
      ...(signal && { signal }),
    });
    let output = "";
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      if (said.length < MESSAGE_CHARACTERS) said += text;
    });
    const fail = (how: string, cause?: unknown): void => {
      const what = said.trim().slice(0, MESSAGE_CHARACTERS);
      reject(new SubstrateError("INTERNAL", `${tool} failed: ${what === "" ? how : what}`, { cause }));
    };
    let failure: Error | undefined;
    child.once("error", (error) => {
      failure = error;
      // without a process there is no end of one to wait for
      if (child.pid === undefined) fail(error.message, error);
    });
    child.once("close", (code, endedBy) => {
      if (failure !== undefined) fail(failure.message, failure);
      else if (code === 0 || (alsoFine !== undefined && code === alsoFine)) resolve(output);
      else if (endedBy === null) fail(`it ended with exit code ${String(code)}`);
      else fail(`it was ended by ${endedBy}, after ${timeoutMs / 1000} s at most`);
    });
  });
}
