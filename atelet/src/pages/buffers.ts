/** Smaller ones are not told apart. */
const leastBytes = 256 << 10;

/**
 * The memory of one transfer, which goes from thread to thread and comes back. New memory costs a page fault for every
 * 4 KiB, and what is left to the collector makes it run over the whole heap.
 */
export class Buffers {
  readonly #maxBytes: number;
  readonly #free: ArrayBuffer[] = [];
  /** Of all that are there, free or not. */
  #bytes = 0;

  /** @param maxBytes of all together. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** What a buffer for so much takes: powers of two, so that few sizes are used again often. */
  static sizeFor(lengthBytes: number): number {
    return Math.max(leastBytes, 2 ** Math.ceil(Math.log2(lengthBytes)));
  }

  /** One of `sizeFor` so much; with those that are in use it must be within the limit. What is in it is anything. */
  take(lengthBytes: number): ArrayBuffer {
    const sizeBytes = Buffers.sizeFor(lengthBytes);
    const at = this.#free.findIndex(({ byteLength }) => byteLength === sizeBytes);
    const [kept] = at < 0 ? [] : this.#free.splice(at, 1);
    if (kept !== undefined) return kept;
    while (this.#bytes + sizeBytes > this.#maxBytes && this.#free.length > 0) this.#drop(this.#free.pop());
    this.#bytes += sizeBytes;
    return new ArrayBuffer(sizeBytes);
  }

  /** What was taken, or another one of its size. */
  giveBack(buffer: ArrayBuffer): void {
    this.#free.push(buffer);
  }

  /** Frees at once what was given back. */
  end(): void {
    for (const buffer of this.#free.splice(0)) this.#drop(buffer);
  }

  #drop(buffer: ArrayBuffer | undefined): void {
    this.#bytes -= buffer?.byteLength ?? 0;
    buffer?.transfer(0);
  }
}
