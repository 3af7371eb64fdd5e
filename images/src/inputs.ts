import { createHash } from "node:crypto";
import { readdir, readFile, realpath, stat } from "node:fs/promises";
import { join, relative } from "node:path";

/** Text that is the same as long as these files and folders of sources are; tests don't count. */
export async function sourcesHash(root: string, paths: readonly string[]): Promise<string> {
  const hash = createHash("sha256");
  for (const path of paths) {
    for (const file of await filesOf(join(root, path))) {
      hash
        .update(`${relative(root, file)}\0`)
        .update(await readFile(file))
        .update("\0");
    }
  }
  return hash.digest("hex");
}

async function filesOf(path: string): Promise<string[]> {
  if ((await stat(path)).isFile()) return [path];
  const entries = await readdir(path, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && !entry.name.endsWith(".test.ts"))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => !file.includes("/node_modules/"))
    .sort();
}

/** Which program this is, without reading all of it. */
export async function programState(path: string): Promise<string> {
  const real = await realpath(path);
  const { size, mtimeMs } = await stat(real);
  return `${real} ${size} ${mtimeMs}`;
}

/** A short name for all that decides what something is. */
export function keyOf(...inputs: readonly unknown[]): string {
  return createHash("sha256").update(JSON.stringify(inputs)).digest("hex").slice(0, 16);
}
