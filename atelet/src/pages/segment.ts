import { createHash } from "node:crypto";
import { constants, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { damaged } from "./damage.ts";
import { type Segment } from "./page-index.ts";
import { PAGE_BYTES } from "./pages.ts";

export const SEGMENT_PAGES = 256;

/** A sample is every 16th page; what zstd at its fastest doesn't bring below this is not tried in full. */
const sampleEvery = 16;
const promising = 0.93;
const worthwhile = 0.95;

/** Of one compression more than its input has, so that the output comes as one buffer. */
const slackBytes = 16 << 10;

/** @param level -1 would mean 3. */
function compressed(bytes: Uint8Array, level: number): Buffer {
  return zstdCompressSync(bytes, {
    params: { [constants.ZSTD_c_compressionLevel]: level },
    chunkSize: bytes.length + slackBytes,
  });
}

function isPromising(pages: Uint8Array): boolean {
  const count = pages.length / PAGE_BYTES;
  const sample = Buffer.allocUnsafe(Math.ceil(count / sampleEvery) * PAGE_BYTES);
  for (let page = 0, to = 0; page < count; page += sampleEvery, to += PAGE_BYTES) {
    sample.set(pages.subarray(page * PAGE_BYTES, (page + 1) * PAGE_BYTES), to);
  }
  return compressed(sample, -5).length < promising * sample.length;
}

/**
 * @param pages at most 256 whole ones; the segment's bytes are then at the beginning of their place. The same pages give
 * the same bytes.
 */
export function encodeSegment(pages: Uint8Array): Segment {
  const packed = isPromising(pages) ? compressed(pages, 1) : undefined;
  const zstd = packed !== undefined && packed.length < worthwhile * pages.length;
  if (zstd) pages.set(packed);
  const bytes = zstd ? packed.length : pages.length;
  const sha256 = createHash("sha256").update(pages.subarray(0, bytes)).digest();
  return { bytes, zstd, pages: pages.length / PAGE_BYTES, sha256 };
}

/** The segment's pages. @param stored its bytes. @param name of it, for messages. Throws SNAPSHOT_DAMAGED. */
export function decodeSegment(stored: Uint8Array, segment: Segment, name: string): Uint8Array {
  const pageBytes = segment.pages * PAGE_BYTES;
  if (stored.length !== segment.bytes || !createHash("sha256").update(stored).digest().equals(segment.sha256)) {
    throw damaged(`${name} has other content than was stored`);
  }
  const pages = segment.zstd
    ? zstdDecompressSync(stored, { chunkSize: Math.max(64, pageBytes), maxOutputLength: pageBytes })
    : stored;
  if (pages.length !== pageBytes) throw damaged(`${name} has ${pages.length} bytes instead of ${pageBytes}`);
  return pages;
}
