import { createHash } from "node:crypto";
import { Buffers } from "./buffers.ts";
import { Flights } from "./flights.ts";
import { type Job } from "./job.ts";
import { type Pack, type Segment } from "./page-index.ts";
import { PAGE_BYTES } from "./pages.ts";
import { encodeSegment, SEGMENT_PAGES } from "./segment.ts";

const packBytes = 16 << 20;
const segmentBytes = SEGMENT_PAGES * PAGE_BYTES;
/** One is sent while the next is made; the second one bridges the store's round trip. */
const maxPuts = 2;

/** Puts pages into segments, and these into packs, in the order in which they come. */
export class PackWriter {
  readonly #job: Job;
  readonly #keyPrefix: string;
  readonly #puts: Flights;
  readonly #buffers = new Buffers((maxPuts + 1) * packBytes);
  readonly #packs: Pack[] = [];
  #pack: Uint8Array<ArrayBuffer> | undefined;
  #packedBytes = 0;
  /** Of the segment under way, behind what is packed. */
  #filledBytes = 0;
  #segments: Segment[] = [];
  #storedBytes = 0;

  constructor(job: Job, keyPrefix: string) {
    this.#job = job;
    this.#keyPrefix = keyPrefix;
    this.#puts = new Flights(job, maxPuts, Infinity);
  }

  /** Where the next pages are to be written: at most so many, and at least one. Then call `added`. */
  place(pages: number): Uint8Array<ArrayBuffer> {
    this.#pack ??= new Uint8Array(this.#buffers.take(packBytes));
    const start = this.#packedBytes + this.#filledBytes;
    const lengthBytes = Math.min(pages * PAGE_BYTES, segmentBytes - this.#filledBytes);
    return this.#pack.subarray(start, start + lengthBytes);
  }

  /** All of the last place has been written. */
  async added(lengthBytes: number): Promise<void> {
    this.#filledBytes += lengthBytes;
    if (this.#filledBytes === segmentBytes) await this.#endSegment();
  }

  /** Resolves when all packs are stored. */
  async end(): Promise<{ packs: Pack[]; storedBytes: number }> {
    await this.#endSegment();
    await this.#endPack();
    await this.#puts.end();
    this.#buffers.end();
    return { packs: this.#packs, storedBytes: this.#storedBytes };
  }

  async #endSegment(): Promise<void> {
    if (this.#filledBytes === 0 || this.#pack === undefined) return;
    const end = this.#packedBytes + this.#filledBytes;
    const segment = encodeSegment(this.#pack.subarray(this.#packedBytes, end));
    this.#filledBytes = 0;
    this.#packedBytes += segment.bytes;
    this.#segments.push(segment);
    // pages are read to their place before it is known what they come to
    if (this.#packedBytes + segmentBytes > packBytes) await this.#endPack();
    await this.#job.breathe();
  }

  async #endPack(): Promise<void> {
    const pack = this.#pack?.buffer;
    if (this.#packedBytes === 0 || pack === undefined) return;
    const digest = createHash("sha256");
    for (const { sha256 } of this.#segments) digest.update(sha256);
    const packKey = `${this.#keyPrefix}${this.#packs.length}-${digest.digest("hex").slice(0, 16)}`;
    const bytes = this.#packedBytes;
    this.#packs.push({ key: packKey, segments: this.#segments });
    this.#storedBytes += bytes;
    await this.#puts.start(bytes, async () => {
      this.#buffers.giveBack(await this.#job.ask("put", { packKey, bytes: pack, lengthBytes: bytes }, [pack]));
    });
    this.#pack = undefined;
    this.#packedBytes = 0;
    this.#segments = [];
  }
}
