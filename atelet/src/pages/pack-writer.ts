import { createHash } from "node:crypto";
import { Flights } from "./flights.ts";
import { type Job } from "./job.ts";
import { type Pack, type Segment } from "./page-index.ts";
import { PAGE_BYTES } from "./pages.ts";
import { encodeSegment, SEGMENT_PAGES } from "./segment.ts";

const packBytes = 16 << 20;
/** One is sent while the next is made; the second one bridges the store's round trip. */
const maxPuts = 2;

/** Puts pages into segments, and these into packs, in the order in which they come. */
export class PackWriter {
  readonly #job: Job;
  readonly #keyPrefix: string;
  readonly #puts: Flights;
  readonly #packs: Pack[] = [];
  readonly #pages = Buffer.allocUnsafe(SEGMENT_PAGES * PAGE_BYTES);
  #filledBytes = 0;
  #pack = new Uint8Array(0);
  #packedBytes = 0;
  #segments: Segment[] = [];
  #storedBytes = 0;

  constructor(job: Job, keyPrefix: string) {
    this.#job = job;
    this.#keyPrefix = keyPrefix;
    this.#puts = new Flights(job, maxPuts, Infinity);
  }

  /** @param pages whole ones; copied. */
  async add(pages: Uint8Array): Promise<void> {
    for (let at = 0; at < pages.length;) {
      const part = pages.subarray(at, at + this.#pages.length - this.#filledBytes);
      this.#pages.set(part, this.#filledBytes);
      this.#filledBytes += part.length;
      at += part.length;
      if (this.#filledBytes === this.#pages.length) await this.#endSegment();
    }
  }

  /** Resolves when all packs are stored. */
  async end(): Promise<{ packs: Pack[]; storedBytes: number }> {
    await this.#endSegment();
    await this.#endPack();
    await this.#puts.end();
    return { packs: this.#packs, storedBytes: this.#storedBytes };
  }

  async #endSegment(): Promise<void> {
    if (this.#filledBytes === 0) return;
    const { bytes, segment } = encodeSegment(this.#pages.subarray(0, this.#filledBytes));
    this.#filledBytes = 0;
    if (this.#packedBytes + bytes.length > packBytes) await this.#endPack();
    if (this.#pack.length === 0) this.#pack = new Uint8Array(packBytes);
    this.#pack.set(bytes, this.#packedBytes);
    this.#packedBytes += bytes.length;
    this.#segments.push(segment);
    await this.#job.breathe();
  }

  async #endPack(): Promise<void> {
    if (this.#packedBytes === 0) return;
    const digest = createHash("sha256");
    for (const { sha256 } of this.#segments) digest.update(sha256);
    const packKey = `${this.#keyPrefix}${this.#packs.length}-${digest.digest("hex").slice(0, 16)}`;
    const pack = this.#pack.buffer;
    const bytes = this.#packedBytes;
    this.#packs.push({ key: packKey, segments: this.#segments });
    this.#storedBytes += bytes;
    await this.#puts.start(bytes, async () => {
      // cut, if it isn't full, by a copy: only now, when an earlier pack has gone
      const cut = pack.transfer(bytes);
      await this.#job.ask("put", { packKey, bytes: cut }, [cut]);
    });
    this.#pack = new Uint8Array(0);
    this.#packedBytes = 0;
    this.#segments = [];
  }
}
