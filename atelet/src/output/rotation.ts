import { closeSync, openSync, readSync, statSync, truncateSync, writeSync } from "node:fs";
import { copyFile, rm, stat } from "node:fs/promises";
import { isMissing } from "../node-files.ts";

/** An actor's output is cut when it is larger; one older piece is kept beside it. */
export const MAX_OUTPUT_BYTES = 8 * 2 ** 20;

export function olderPiece(path: string): string {
  return `${path}.1`;
}

/** What was cut off: `problem` says why the older piece does not have it. */
export interface Cut {
  bytes: number;
  problem?: unknown;
}

/**
 * Cuts the output if it has become too large: by copy and truncate, as the program's descriptor, opened O_APPEND, goes on
 * writing to the same file.
 * @returns undefined if nothing was to be done.
 */
export async function rotate(path: string): Promise<Cut | undefined> {
  try {
    if ((await stat(path)).size <= MAX_OUTPUT_BYTES) return undefined;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
  const older = olderPiece(path);
  // The bound comes first: on a full disk the older piece is given up rather than the node.
  try {
    await rm(older, { force: true });
    await copyFile(path, older);
    return { bytes: cutCopied(path, older) };
  } catch (problem) {
    const { size } = statSync(path);
    truncateSync(path, 0);
    await rm(older, { force: true });
    return { bytes: size, problem };
  }
}

/** Without a pause between the last look and the cut: only what comes in these microseconds is lost. */
function cutCopied(path: string, older: string): number {
  const source = openSync(path, "r");
  const target = openSync(older, "a");
  try {
    let copied = statSync(older).size;
    const buffer = Buffer.alloc(256 * 1024);
    // A program that writes faster than this copies must not hold it up.
    for (let i = 0; i < 8; i += 1) {
      const bytes = readSync(source, buffer, 0, buffer.length, copied);
      if (bytes === 0) break;
      writeSync(target, buffer, 0, bytes);
      copied += bytes;
    }
    truncateSync(path, 0);
    return copied;
  } finally {
    closeSync(source);
    closeSync(target);
  }
}
