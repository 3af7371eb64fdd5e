import { closeSync, fstatSync, openSync, readSync, statSync } from "node:fs";
import { isMissing } from "../node-files.ts";

const TAIL_BYTES = 1024;
const TAIL_LINES = 5;

/** How much a program's output is now; what comes later is another run's. */
export function outputSize(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/**
 * The last lines that a program wrote, in one line for a message; "" if it wrote none.
 * @param since where this run's output begins (outputSize at its start); a rotated file is shorter, then all counts.
 */
export function lastLines(path: string, since = 0): string {
  let fd: number;
  try {
    fd = openSync(path, "r");
  } catch (error) {
    if (isMissing(error)) return "";
    throw error;
  }
  try {
    const { size } = fstatSync(fd);
    const tail = Buffer.alloc(Math.min(since > size ? size : size - since, TAIL_BYTES));
    readSync(fd, tail, 0, tail.length, size - tail.length);
    return tail.toString("utf8").trimEnd().split("\n").slice(-TAIL_LINES).join(" | ");
  } finally {
    closeSync(fd);
  }
}
