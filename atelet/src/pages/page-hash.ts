import { PAGE_BYTES } from "./pages.ts";
import { MOST_PAGES, Xxh128 } from "./xxh128.ts";

export const HASH_BYTES = 16;

/** xxh128 of pages. It isn't cryptographic: it only ever compares an actor with its own past. */
export class PageHash {
  readonly #hasher: Xxh128;
  /** Of a page of zeros. */
  readonly zero: Buffer<ArrayBuffer>;

  private constructor(hasher: Xxh128) {
    this.#hasher = hasher;
    this.zero = Buffer.alloc(HASH_BYTES);
    this.of(new Uint8Array(PAGE_BYTES), this.zero);
  }

  static async create(): Promise<PageHash> {
    return new PageHash(await Xxh128.create());
  }

  /** @param pages whole ones. @param into gets their hashes, one after the other. */
  of(pages: Uint8Array, into: Uint8Array): void {
    const stepBytes = MOST_PAGES * PAGE_BYTES;
    for (let at = 0, to = 0; at < pages.length; at += stepBytes, to += MOST_PAGES * HASH_BYTES) {
      into.set(this.#hasher.of(pages.subarray(at, at + stepBytes)), to);
    }
  }

  isZero(hash: Uint8Array): boolean {
    return this.zero.equals(hash);
  }
}

/** Pages of an image of so many bytes; the last one may be cut short, and is filled up with zeros. */
export function pageCount(sizeBytes: number): number {
  return Math.ceil(sizeBytes / PAGE_BYTES);
}
