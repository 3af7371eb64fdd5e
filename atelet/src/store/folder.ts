import { type Dirent } from "node:fs";
import { mkdir, open, readdir, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";

/** The errno's name of a failed system call, or "". */
export function errnoOf(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
}

/** Whether the call failed because there is no such file. */
export function isAbsent(error: unknown): boolean {
  return errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTDIR";
}

/** fsync of a folder: what was renamed, made or removed in it survives a power cut. One that is gone has nothing to lose. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r").catch((error: unknown) => {
    if (isAbsent(error)) return undefined;
    throw error;
  });
  if (!folder) return;
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** mkdir -p, mode 0700. @returns the folders that got a new entry and are to be synced. */
export async function makeFolder(path: string): Promise<string[]> {
  const first = await mkdir(path, { recursive: true, mode: 0o700 });
  const changed: string[] = [];
  if (first === undefined) return changed;
  for (let made = path; made.length >= first.length; made = dirname(made)) changed.push(dirname(made));
  return changed;
}

/**
 * Removes a folder and the ones above it, below `root`, while they are empty; in the first one also empty folders, which
 * a removal that was cut off has left. @returns the first that stays.
 */
export async function removeEmptyFolders(path: string, root: string): Promise<string> {
  await removeEmptyChildren(path);
  let folder = path;
  while (folder !== root) {
    try {
      await rmdir(folder);
    } catch (error) {
      if (errnoOf(error) === "ENOTEMPTY") return folder;
      if (!isAbsent(error)) throw error;
    }
    folder = dirname(folder);
  }
  return folder;
}

async function removeEmptyChildren(path: string): Promise<void> {
  let entries: Dirent[];
  try {
    entries = await readdir(path, { withFileTypes: true });
  } catch (error) {
    if (isAbsent(error)) return;
    throw error;
  }
  for (const entry of entries.filter((one) => one.isDirectory())) {
    try {
      await rmdir(join(path, entry.name));
    } catch (error) {
      if (errnoOf(error) !== "ENOTEMPTY" && !isAbsent(error)) throw error;
    }
  }
}

/** All files below a folder; folders that vanish meanwhile are empty. */
export async function* filesBelow(folder: string): AsyncGenerator<string> {
  let entries: Dirent[];
  try {
    entries = await readdir(folder, { withFileTypes: true });
  } catch (error) {
    if (isAbsent(error)) return;
    throw error;
  }
  for (const entry of entries) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* filesBelow(path);
    else if (entry.isFile()) yield path;
  }
}
