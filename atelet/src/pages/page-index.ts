import { createHash } from "node:crypto";
import { zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { ByteReader, ByteWriter } from "./bytes.ts";
import { damaged } from "./damage.ts";
import { pageCount } from "./page-hash.ts";

/** What is stored as one piece of a pack, and checked as one. */
export interface Segment {
  /** As stored. */
  bytes: number;
  zstd: boolean;
  pages: number;
  /** Of the stored bytes. */
  sha256: Uint8Array;
}

/** Segments lie in a pack one after the other. */
export interface Pack {
  key: string;
  segments: Segment[];
}

/** Instead of a number: a page of zeros, which no pack has. */
export const ZERO_PAGE = 0xffff_ffff;

/**
 * Where each page of an image is stored. The pages of all packs are numbered through, in the order of the packs; each
 * page of the image has the number of a stored one, or is `ZERO_PAGE`.
 */
export interface PageIndex {
  /** Of the image. */
  sizeBytes: number;
  packs: Pack[];
  pages: Uint32Array<ArrayBuffer>;
}

/** "subindx" and the format's number; 24 unused bytes; SHA-256 of all of this and of the rest, which is zstd. */
const magic = Buffer.from("subindx\x01");
const headerBytes = 64;
const digestAt = 32;
/** What no real index reaches: that of an image of 8 GiB without two pages in a row has 14 MiB. */
const maxBodyBytes = 1 << 29;

export function packPages(pack: Pack): number {
  return pack.segments.reduce((sum, { pages }) => sum + pages, 0);
}

/** The number of each pack's first page, and, last, of all pages together. */
export function firstPages(packs: readonly Pack[]): number[] {
  const starts = [0];
  for (const pack of packs) starts.push((starts.at(-1) ?? 0) + packPages(pack));
  return starts;
}

export function encodeIndex(index: PageIndex): Buffer<ArrayBuffer> {
  const writer = new ByteWriter();
  writePacks(writer, index.packs);
  writeRuns(writer, index);
  const body = zstdCompressSync(writer.written());
  const bytes = Buffer.alloc(headerBytes + body.length);
  magic.copy(bytes);
  bytes.set(body, headerBytes);
  digestOf(bytes).copy(bytes, digestAt);
  return bytes;
}

/** @param name for messages. Throws SNAPSHOT_DAMAGED. */
export function decodeIndex(index: Uint8Array, name: string): PageIndex {
  const bytes = Buffer.from(index.buffer, index.byteOffset, index.byteLength);
  if (bytes.length < headerBytes || !bytes.subarray(0, magic.length).equals(magic)) {
    throw damaged(`${name} is no index of pages`);
  }
  if (!digestOf(bytes).equals(bytes.subarray(digestAt, headerBytes))) {
    throw damaged(`${name} has other content than was written`);
  }
  const body = zstdDecompressSync(bytes.subarray(headerBytes), { maxOutputLength: maxBodyBytes });
  const reader = new ByteReader(body, name);
  const packs = readPacks(reader);
  const { sizeBytes, pages } = readRuns(reader, firstPages(packs).at(-1) ?? 0, name);
  if (!reader.atEnd()) throw damaged(`${name} has more than its image's pages`);
  return { sizeBytes, packs, pages };
}

function digestOf(bytes: Buffer): Buffer {
  return createHash("sha256").update(bytes.subarray(0, digestAt)).update(bytes.subarray(headerBytes)).digest();
}

function writePacks(writer: ByteWriter, packs: readonly Pack[]): void {
  writer.number(packs.length);
  for (const { key, segments } of packs) {
    writer.text(key);
    writer.number(segments.length);
    for (const { bytes, zstd, pages, sha256 } of segments) {
      writer.number(2 * bytes + (zstd ? 1 : 0));
      writer.number(pages);
      writer.bytes(sha256);
    }
  }
}

function readPacks(reader: ByteReader): Pack[] {
  const packs: Pack[] = [];
  for (let left = reader.number(); left > 0; left -= 1) {
    const key = reader.text();
    const segments: Segment[] = [];
    for (let segmentsLeft = reader.number(); segmentsLeft > 0; segmentsLeft -= 1) {
      const stored = reader.number();
      const pages = reader.number();
      segments.push({
        bytes: Math.floor(stored / 2),
        zstd: stored % 2 === 1,
        pages,
        sha256: new Uint8Array(reader.bytes(32)),
      });
    }
    packs.push({ key, segments });
  }
  return packs;
}

/** Pages that follow each other in a pack, or zeros: twice the count, and one more if zeros; where from the last end. */
function writeRuns(writer: ByteWriter, { sizeBytes, pages }: PageIndex): void {
  writer.number(sizeBytes);
  let end = 0;
  for (let at = 0; at < pages.length;) {
    const first = pages[at] ?? 0;
    const zero = first === ZERO_PAGE;
    let count = 1;
    while (at + count < pages.length && pages[at + count] === (zero ? ZERO_PAGE : first + count)) count += 1;
    writer.number(2 * count + (zero ? 1 : 0));
    if (!zero) {
      writer.difference(first - end);
      end = first + count;
    }
    at += count;
  }
}

function readRuns(reader: ByteReader, storedPages: number, name: string): Pick<PageIndex, "sizeBytes" | "pages"> {
  const sizeBytes = reader.number();
  const pages = new Uint32Array(pageCount(sizeBytes));
  let end = 0;
  let at = 0;
  while (at < pages.length) {
    const head = reader.number();
    const count = Math.floor(head / 2);
    if (count === 0 || at + count > pages.length) throw damaged(`${name} has a run that is not of its image`);
    if (head % 2 === 1) {
      pages.fill(ZERO_PAGE, at, at + count);
    } else {
      const first = end + reader.difference();
      end = first + count;
      if (first < 0 || end > storedPages) throw damaged(`${name} has a run that is not in its packs`);
      for (let i = 0; i < count; i += 1) pages[at + i] = first + i;
    }
    at += count;
  }
  return { sizeBytes, pages };
}
