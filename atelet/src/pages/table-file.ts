import { createHash } from "node:crypto";
import { closeSync, fstatSync, ftruncateSync, openSync, renameSync, rmSync } from "node:fs";
import { damaged } from "./damage.ts";
import { readFully, writeFully } from "./file-bytes.ts";
import { HASH_BYTES, pageCount } from "./page-hash.ts";

/** "subtabl" and the format's number; a table of another format is made anew. */
const magic = Buffer.from("subtabl\x01");
/** magic, the image's size, 16 unused bytes, SHA-256 of all of this and of the hashes */
const headerBytes = 64;
const digestAt = 32;
const chunkBytes = 1 << 20;

function header(sizeBytes: number): Buffer<ArrayBuffer> {
  const bytes = Buffer.alloc(headerBytes);
  magic.copy(bytes);
  bytes.writeBigUInt64LE(BigInt(sizeBytes), magic.length);
  return bytes;
}

/** SHA-256 of header and hashes as they are in the file. */
function digestOf(fd: number, head: Buffer, pages: number, path: string): Buffer {
  const hash = createHash("sha256").update(head.subarray(0, digestAt));
  const buffer = Buffer.allocUnsafe(Math.min(chunkBytes, pages * HASH_BYTES));
  const endBytes = pages * HASH_BYTES;
  for (let at = 0; at < endBytes; at += buffer.length) {
    const chunk = buffer.subarray(0, Math.min(buffer.length, endBytes - at));
    readFully(fd, chunk, headerBytes + at, path);
    hash.update(chunk);
  }
  return hash.digest();
}

/** A table that was found to be whole. */
export class TableFile {
  readonly path: string;
  /** Of the image. */
  readonly sizeBytes: number;
  readonly pages: number;
  readonly #fd: number;

  private constructor(path: string, fd: number, sizeBytes: number) {
    this.path = path;
    this.#fd = fd;
    this.sizeBytes = sizeBytes;
    this.pages = pageCount(sizeBytes);
  }

  /** Throws SNAPSHOT_DAMAGED, or ENOENT. */
  static open(path: string): TableFile {
    const fd = openSync(path, "r");
    try {
      const head = Buffer.alloc(headerBytes);
      readFully(fd, head, 0, path);
      if (!head.subarray(0, magic.length).equals(magic)) throw damaged(`${path} is no table of pages`);
      const table = new TableFile(path, fd, Number(head.readBigUInt64LE(magic.length)));
      const expectedBytes = headerBytes + table.pages * HASH_BYTES;
      const actualBytes = fstatSync(fd).size;
      if (actualBytes !== expectedBytes) throw damaged(`${path} has ${actualBytes} bytes instead of ${expectedBytes}`);
      if (!digestOf(fd, head, table.pages, path).equals(head.subarray(digestAt))) {
        throw damaged(`${path} has other content than was written`);
      }
      return table;
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  /** Hashes from a page on, as many as the buffer has room for. */
  read(firstPage: number, into: Uint8Array): void {
    readFully(this.#fd, into, headerBytes + firstPage * HASH_BYTES, this.path);
  }

  /** Hashes in order, in chunks of at most 1 MiB. The chunk is the same buffer each time. */
  *chunks(): Generator<{ firstPage: number; hashes: Buffer<ArrayBuffer> }> {
    const pagesPerChunk = chunkBytes / HASH_BYTES;
    const buffer = Buffer.from(new ArrayBuffer(Math.min(pagesPerChunk, this.pages) * HASH_BYTES));
    for (let firstPage = 0; firstPage < this.pages; firstPage += pagesPerChunk) {
      const hashes = buffer.subarray(0, Math.min(pagesPerChunk, this.pages - firstPage) * HASH_BYTES);
      this.read(firstPage, hashes);
      yield { firstPage, hashes };
    }
  }

  close(): void {
    closeSync(this.#fd);
  }
}

/** A table in the making, beside its final name. Hashes may come in any order. */
export class TableWriter {
  readonly #path: string;
  readonly #partial: string;
  readonly #fd: number;

  constructor(path: string) {
    this.#path = path;
    this.#partial = `${path}.partial`;
    this.#fd = openSync(this.#partial, "w+", 0o600);
  }

  write(firstPage: number, hashes: Uint8Array): void {
    writeFully(this.#fd, hashes, headerBytes + firstPage * HASH_BYTES);
  }

  /** @param sizeBytes of the image, all of whose pages were written. No fsync: what a power cut leaves is seen (R21). */
  commit(sizeBytes: number): void {
    const pages = pageCount(sizeBytes);
    ftruncateSync(this.#fd, headerBytes + pages * HASH_BYTES);
    const head = header(sizeBytes);
    digestOf(this.#fd, head, pages, this.#partial).copy(head, digestAt);
    writeFully(this.#fd, head, 0);
    renameSync(this.#partial, this.#path);
    closeSync(this.#fd);
  }

  abandon(): void {
    closeSync(this.#fd);
    rmSync(this.#partial, { force: true });
  }
}
