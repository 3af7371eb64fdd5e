import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { isMissing } from "../node-files.ts";

const TAIL_BYTES = 1024;
const TAIL_LINES = 5;

/** The last lines that a program wrote, for a message; "" if it wrote none. */
export function lastLines(path: string): string {
  let fd: number;
  try {
    fd = openSync(path, "r");
  } catch (error) {
    if (isMissing(error)) return "";
    throw error;
  }
  try {
    const { size } = fstatSync(fd);
    const tail = Buffer.alloc(Math.min(size, TAIL_BYTES));
    readSync(fd, tail, 0, tail.length, size - tail.length);
    return tail.toString("utf8").trimEnd().split("\n").slice(-TAIL_LINES).join("\n");
  } finally {
    closeSync(fd);
  }
}
