import { Buffers } from "./buffers.ts";
import { Flights } from "./flights.ts";
import { type ImageWriter } from "./image-writer.ts";
import { type Job } from "./job.ts";
import { HASH_BYTES, type PageHash } from "./page-hash.ts";
import { type PageIndex } from "./page-index.ts";
import { PAGE_BYTES } from "./pages.ts";
import { type Range, rangesOf, type Wanted, type WantedSegment } from "./ranges.ts";
import { decodeSegment, SEGMENT_PAGES } from "./segment.ts";

const maxGets = 12;
/** What one transfer may hold … */
const transferBytes = 64 << 20;
/** … of which this much is kept for each page: the index, what is reused of it, and the order of what is fetched. */
const bytesPerPage = 17;
const maxGetBytes = 40 << 20;
const minGetBytes = 16 << 20;

export interface Fetched {
  bytes: number;
  pages: number;
}

/** Reads packs, and writes what is wanted of them into an image. */
export class Fetch {
  readonly #job: Job;
  readonly #index: PageIndex;
  readonly #image: ImageWriter;
  readonly #hash: PageHash;
  readonly #hashes = Buffer.allocUnsafe(SEGMENT_PAGES * HASH_BYTES);

  constructor(job: Job, index: PageIndex, image: ImageWriter, hash: PageHash) {
    this.#job = job;
    this.#index = index;
    this.#image = image;
    this.#hash = hash;
  }

  /** Throws SNAPSHOT_DAMAGED if a pack has other content than the index says. */
  async all(wanted: Wanted): Promise<Fetched> {
    const bookkeepingBytes = this.#index.pages.length * bytesPerPage;
    const getBytes = Math.min(maxGetBytes, Math.max(minGetBytes, transferBytes - bookkeepingBytes));
    const flights = new Flights(this.#job, maxGets, getBytes);
    const buffers = new Buffers(getBytes);
    let bytes = 0;
    for (const range of rangesOf(this.#index.packs, wanted)) {
      bytes += range.bytes;
      await flights.start(Buffers.sizeFor(range.bytes), async () => {
        buffers.giveBack(await this.#one(range, buffers.take(range.bytes), wanted));
      });
    }
    await flights.end();
    buffers.end();
    return { bytes, pages: wanted.length };
  }

  /** @returns the buffer, or another of its size. */
  async #one({ packKey, offset, bytes, segments }: Range, into: ArrayBuffer, wanted: Wanted): Promise<ArrayBuffer> {
    const buffer = await this.#job.ask("get", { packKey, offset, length: bytes, into }, [into]);
    for (const wantedSegment of segments) {
      await this.#job.breathe();
      const { segment, at, offset: start } = wantedSegment;
      const stored = new Uint8Array(buffer).subarray(start, start + segment.bytes);
      this.#scatter(decodeSegment(stored, segment, `segment ${at} of pack ${packKey}`), wantedSegment, wanted);
    }
    return buffer;
  }

  #scatter(pages: Uint8Array, { firstNumber, from, to }: WantedSegment, wanted: Wanted): void {
    for (let at = from; at < to;) {
      const page = wanted.page(at);
      const number = wanted.number(at);
      let count = 1;
      while (
        at + count < to &&
        wanted.page(at + count) === page + count &&
        wanted.number(at + count) === number + count
      )
        count += 1;
      const start = (number - firstNumber) * PAGE_BYTES;
      const part = pages.subarray(start, start + count * PAGE_BYTES);
      const hashes = this.#hashes.subarray(0, count * HASH_BYTES);
      this.#hash.of(part, hashes);
      this.#image.write(page, part, hashes);
      at += count;
    }
  }
}
