import { readFully } from "./file-bytes.ts";
import { HASH_BYTES, type PageHash } from "./page-hash.ts";
import { PAGE_BYTES } from "./pages.ts";

/** Reads pages of an image with their hashes, into buffers of its own that the next read overwrites. */
export class PageReader {
  readonly fd: number;
  readonly path: string;
  readonly #hash: PageHash;
  readonly #pages: Buffer;
  readonly #hashes: Buffer;

  /** @param chunkPages the most that is read at once. */
  constructor(fd: number, path: string, hash: PageHash, chunkPages: number) {
    this.fd = fd;
    this.path = path;
    this.#hash = hash;
    this.#pages = Buffer.allocUnsafe(chunkPages * PAGE_BYTES);
    this.#hashes = Buffer.allocUnsafe(chunkPages * HASH_BYTES);
  }

  /**
   * @param sizeBytes of the image; what its last page lacks is filled up with zeros.
   * @returns `zeros`: one of the pages has nothing but zeros. Throws SNAPSHOT_DAMAGED if the file is shorter.
   */
  read(firstPage: number, count: number, sizeBytes: number): { pages: Buffer; hashes: Buffer; zeros: boolean } {
    const pages = this.#pages.subarray(0, count * PAGE_BYTES);
    const hashes = this.readInto(pages, firstPage, sizeBytes);
    let zeros = false;
    for (let at = 0; at < hashes.length && !zeros; at += HASH_BYTES) {
      zeros = this.#hash.isZero(hashes.subarray(at, at + HASH_BYTES));
    }
    return { pages, hashes, zeros };
  }

  /** As read, as many as there is place for. @returns their hashes. */
  readInto(pages: Uint8Array, firstPage: number, sizeBytes: number): Buffer {
    const hashes = this.#hashes.subarray(0, (pages.length / PAGE_BYTES) * HASH_BYTES);
    const position = firstPage * PAGE_BYTES;
    const inFile = Math.min(pages.length, sizeBytes - position);
    readFully(this.fd, pages.subarray(0, inFile), position, this.path);
    pages.fill(0, inFile);
    this.#hash.of(pages, hashes);
    return hashes;
  }
}
