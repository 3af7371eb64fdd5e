import { fstatSync, readSync, writeSync } from "node:fs";
import { damaged } from "./damage.ts";

/** Fills the buffer; throws SNAPSHOT_DAMAGED if the file ends before. */
export function readFully(fd: number, into: Uint8Array, position: number, path: string): void {
  for (let done = 0; done < into.length;) {
    const length = readSync(fd, into, done, into.length - done, position + done);
    if (length === 0) throw damaged(`${path} ends at ${position + done}, inside what it should have`);
    done += length;
  }
}

export function writeFully(fd: number, bytes: Uint8Array, position: number): void {
  for (let done = 0; done < bytes.length;) done += writeSync(fd, bytes, done, bytes.length - done, position + done);
}

/** Changes with every write to a file. */
export function looksOf(fd: number): { sizeBytes: number; stamp: string } {
  const { size, mtimeNs, ctimeNs } = fstatSync(fd, { bigint: true });
  return { sizeBytes: Number(size), stamp: `${size}:${mtimeNs}:${ctimeNs}` };
}
