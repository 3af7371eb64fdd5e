import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, openSync, unlinkSync, writeSync } from "node:fs";
import { join } from "node:path";

/** What an image needs beside the memory that is held. */
const IMAGE_MARGIN_MIB = 64;

/**
 * Makes two suspends comparable. Nothing of an earlier one is left to be written; and as much memory as the image will
 * take has just been freed: a virtual machine may have given older free memory back to its host, and the first touch of
 * a gigabyte of that was measured at 1.3 s, whoever does it.
 *
 * @param dir where a file of that size may be for a moment.
 */
export function level(dir: string, mib: number): void {
  execFileSync("sync");
  const path = join(dir, "level");
  const piece = randomBytes(2 ** 20);
  const file = openSync(path, "w");
  for (let i = 0; i < mib + IMAGE_MARGIN_MIB; i++) writeSync(file, piece);
  closeSync(file);
  unlinkSync(path);
}
