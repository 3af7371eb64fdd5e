import { constants } from "node:fs";
import { open, readdir, readFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";

/**
 * Writes JSON to a temporary name and renames it: a reader sees the old or the new content, never half of it.
 * @param options.durable also survives a power cut (fsync of file and folder). Only for what safety needs: grants,
 * releases, locks. Everything on the path of a wake or a suspend is written without (R21, R23): on ext4 an fsync may
 * have to write out other actors' snapshots first.
 */
export async function writeJson(path: string, value: unknown, options: { durable: boolean }): Promise<void> {
  const temporary = `${path}.tmp`;
  const file = await open(temporary, "w", 0o600);
  try {
    await file.writeFile(JSON.stringify(value, undefined, 1));
    if (options.durable) await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
  if (options.durable) await syncFolder(dirname(path));
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** The parsed content, or undefined if there is no such file. Throws, naming the file, if it is not JSON. */
export async function readJson(path: string): Promise<unknown> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new Error(`${path} is not JSON`, { cause: error });
  }
}

export function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}

export async function removeFolder(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true, maxRetries: 3 });
}

/** Names in a folder; none if it is not there. */
export async function namesIn(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** What was being written in a folder when an earlier atelet ended: files under temporary names. */
export async function removeHalfWritten(dir: string): Promise<void> {
  for (const name of await namesIn(dir)) {
    if (/\.(?:tmp|partial)$/.test(name)) await rm(join(dir, name), { force: true });
  }
}
