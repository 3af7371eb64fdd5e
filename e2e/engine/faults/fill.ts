import { execFileSync } from "node:child_process";
import { readdirSync, rmSync, statfsSync } from "node:fs";
import { join } from "node:path";

const BALLAST = "ballast-";

/** For the folders and the small files of a snapshot, not for its memory; ext4 keeps 16 MiB of it for itself. */
const ALMOST_FULL_BYTES = 28 * 2 ** 20;

/** Takes nearly all that is free on the disk of a node, given a path of one of its actors. */
export function fillDisk(path: string): void {
  const [root] = path.split("/actors/");
  if (root === undefined) throw new Error(`${path} is not in the folder of a node`);
  take(root, () => {
    const { bfree, bsize } = statfsSync(root);
    return bfree * bsize - ALMOST_FULL_BYTES;
  });
}

/** Takes so much of the disk of a folder that this much is left. */
export function leaveFree(dir: string, bytes: number): void {
  take(dir, () => {
    const { bavail, bsize } = statfsSync(dir);
    return bavail * bsize - bytes;
  });
}

function take(dir: string, surplus: () => number): void {
  for (let part = 0; part < 40; part += 1) {
    const size = Math.floor(surplus() / 2 ** Math.floor(part / 4));
    if (size < 8192) return;
    const file = join(dir, `${BALLAST}${process.pid}-${Date.now()}-${part}`);
    try {
      execFileSync("fallocate", ["-l", String(size), file], { stdio: "pipe" });
    } catch {
      // metadata needs some of it, too: less is tried next
      rmSync(file, { force: true });
    }
  }
}

/** Gives all of that back. */
export function freeDisk(dir: string): void {
  for (const name of readdirSync(dir)) if (name.startsWith(BALLAST)) rmSync(join(dir, name));
}
