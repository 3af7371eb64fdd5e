import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Parallel starts may stack a few mounts on one path; more than this is a loop. */
const maxStacked = 64;

async function mounted(path: string): Promise<boolean> {
  const mounts = await readFile("/proc/self/mountinfo", "utf8");
  return mounts.split("\n").some((line) => line.split(" ")[4] === path);
}

/** Unmounts everything that is mounted on this very path. @throws Error with umount's message. */
export async function unmountAll(path: string): Promise<void> {
  for (let count = 0; await mounted(path); count += 1) {
    if (count === maxStacked) throw new Error(`${path} is still mounted after ${maxStacked} unmounts`);
    await run("umount", [path], { timeout: 5_000 });
  }
}
