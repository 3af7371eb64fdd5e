import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { plainEnvironment } from "./config.ts";

const execute = promisify(execFile);

/**
 * Standard output of a program.
 * @throws with what it wrote, if it ends with another code than 0 or takes longer than two minutes.
 */
export async function outputOf(program: string, args: readonly string[]): Promise<string> {
  const { stdout } = await execute(program, args, {
    timeout: 120_000,
    maxBuffer: 64 * 1024 * 1024,
    env: plainEnvironment(),
  });
  return stdout;
}
