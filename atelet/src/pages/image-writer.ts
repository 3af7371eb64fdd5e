import { closeSync, fstatSync, ftruncateSync, openSync, rmSync } from "node:fs";
import { type KernelCalls } from "../writeback/kernel-calls.ts";
import { WriteBehind } from "../writeback/write-behind.ts";
import { damaged } from "./damage.ts";
import { writeFully } from "./file-bytes.ts";
import { HASH_BYTES } from "./page-hash.ts";
import { PAGE_BYTES } from "./pages.ts";
import { TableWriter } from "./table-file.ts";

/** An image in the making, with its table. What is never written are zeros, as holes. */
export class ImageWriter {
  readonly #path: string;
  readonly #sizeBytes: number;
  readonly #fd: number;
  readonly #table: TableWriter;
  readonly #behind: WriteBehind | undefined;

  /**
   * The image must not exist.
   * @param kernel without it as much memory was lent as the image has; with it the image is written at the disk's speed
   * (R7).
   */
  constructor(path: string, table: string, sizeBytes: number, kernel?: KernelCalls) {
    this.#path = path;
    this.#sizeBytes = sizeBytes;
    this.#fd = openSync(path, "wx", 0o600);
    try {
      ftruncateSync(this.#fd, sizeBytes);
      this.#behind = kernel && new WriteBehind(kernel, this.#fd);
      this.#table = new TableWriter(table);
    } catch (error) {
      this.#remove();
      throw error;
    }
  }

  write(firstPage: number, pages: Uint8Array, hashes: Uint8Array): void {
    const position = firstPage * PAGE_BYTES;
    const bytes = pages.subarray(0, this.#sizeBytes - position);
    writeFully(this.#fd, bytes, position);
    this.#behind?.wrote(position, bytes.length);
    this.#table.write(firstPage, hashes);
  }

  /** @param hash of a page of zeros. */
  zeros(firstPage: number, count: number, hash: Uint8Array): void {
    const step = Buffer.alloc(Math.min(count, 4096) * HASH_BYTES);
    for (let at = 0; at < step.length; at += HASH_BYTES) step.set(hash, at);
    for (let at = 0; at < count;) {
      const part = step.subarray(0, (count - at) * HASH_BYTES);
      this.#table.write(firstPage + at, part);
      at += part.length / HASH_BYTES;
    }
  }

  /** All pages have been written. */
  commit(): void {
    const { size } = fstatSync(this.#fd);
    if (size !== this.#sizeBytes) throw damaged(`${this.#path} changed while it was written`);
    this.#behind?.end();
    this.#table.commit(this.#sizeBytes);
    closeSync(this.#fd);
  }

  abandon(): void {
    this.#table.abandon();
    this.#remove();
  }

  #remove(): void {
    closeSync(this.#fd);
    rmSync(this.#path, { force: true });
  }
}
