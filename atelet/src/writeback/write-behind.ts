import { type KernelCalls } from "./kernel-calls.ts";

/** R7: what is written before the disk is waited for; about two of them are dirty at most. */
const CHUNK_BYTES = 8 * 2 ** 20;

/**
 * A large file that is written in order, without a loan: the disk takes each chunk while the next one is written, and
 * what is written waits for the chunk *before*. So it goes at the disk's speed, without a stall per chunk, and at most
 * about two chunks are dirty (R7). Blocking, for worker threads; its user opens and closes the file.
 */
export class WriteBehind {
  readonly #kernel: KernelCalls;
  readonly #fd: number;
  #started = 0;
  #written = 0;

  constructor(kernel: KernelCalls, fd: number) {
    this.#kernel = kernel;
    this.#fd = fd;
  }

  /** After each write, with what was written so far. May wait for the disk. */
  wrote(endOffset: number): void {
    while (endOffset - this.#started >= CHUNK_BYTES) {
      this.#kernel.syncFileRange(this.#fd, this.#started, CHUNK_BYTES, "start");
      if (this.#started > this.#written) {
        this.#kernel.syncFileRange(this.#fd, this.#written, this.#started - this.#written, "finish");
        this.#written = this.#started;
      }
      this.#started += CHUNK_BYTES;
    }
  }

  /** What is left, a chunk or two, is given to the disk and not waited for. */
  end(endOffset: number): void {
    if (endOffset > this.#started)
      this.#kernel.syncFileRange(this.#fd, this.#started, endOffset - this.#started, "start");
  }
}
