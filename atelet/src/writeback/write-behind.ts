import { type KernelCalls } from "./kernel-calls.ts";

/** R7: what is written before the disk is waited for; about two of them are dirty at most. */
const CHUNK_BYTES = 8 * 2 ** 20;

type Range = readonly [offset: number, count: number];

/**
 * A large file that is written without a loan: the disk takes each chunk while the next one is written, and what is
 * written waits for the chunk *before*. So it goes at the disk's speed, without a stall per chunk, and at most about two
 * chunks are dirty (R7). The pieces may come in any order. Blocking, for worker threads; its user opens and closes the
 * file.
 */
export class WriteBehind {
  readonly #kernel: KernelCalls;
  readonly #fd: number;
  #before: Range[] = [];
  #now: Range[] = [];
  #bytes = 0;

  constructor(kernel: KernelCalls, fd: number) {
    this.#kernel = kernel;
    this.#fd = fd;
  }

  /** After each write. May wait for the disk. */
  wrote(offset: number, count: number): void {
    const last = this.#now.at(-1);
    if (last !== undefined && last[0] + last[1] === offset) this.#now.splice(-1, 1, [last[0], last[1] + count]);
    else this.#now.push([offset, count]);
    this.#bytes += count;
    if (this.#bytes < CHUNK_BYTES) return;
    this.end();
    for (const [from, bytes] of this.#before) this.#kernel.syncFileRange(this.#fd, from, bytes, "finish");
    this.#before = this.#now;
    this.#now = [];
    this.#bytes = 0;
  }

  /** What is left, a chunk or two, is given to the disk and not waited for. */
  end(): void {
    for (const [offset, count] of this.#now) this.#kernel.syncFileRange(this.#fd, offset, count, "start");
  }
}
