import { firstPages, type Pack, type Segment } from "./page-index.ts";

/** Of one read of a pack. */
const maxRangeBytes = 8 << 20;
/** What isn't needed is read with its neighbours rather than asking twice. */
const maxGapBytes = 256 << 10;

/** Pages of an image and where they are stored, ordered by the latter, then by the former. */
export class Wanted {
  /** Low word: the image's page; high word: the stored page's number. */
  readonly #words: Uint32Array;
  readonly length: number;

  /** @param number of the stored page of an image's page; undefined if it isn't wanted. */
  constructor(imagePages: number, number: (page: number) => number | undefined) {
    let length = 0;
    for (let page = 0; page < imagePages; page += 1) if (number(page) !== undefined) length += 1;
    const pairs = new BigUint64Array(length);
    this.#words = new Uint32Array(pairs.buffer);
    for (let page = 0, at = 0; page < imagePages; page += 1) {
      const stored = number(page);
      if (stored === undefined) continue;
      this.#words[at] = page;
      this.#words[at + 1] = stored;
      at += 2;
    }
    pairs.sort();
    this.length = length;
  }

  page(at: number): number {
    return this.#words[2 * at] ?? 0;
  }

  /** Infinity behind the last. */
  number(at: number): number {
    return this.#words[2 * at + 1] ?? Infinity;
  }
}

/** A segment with wanted pages, in its range. */
export interface WantedSegment {
  segment: Segment;
  /** Which one of its pack. */
  at: number;
  /** In the range. */
  offset: number;
  /** Number of its first stored page. */
  firstNumber: number;
  /** Of `Wanted`: from, and up to. */
  from: number;
  to: number;
}

/** Bytes of a pack that are read at once. */
export interface Range {
  packKey: string;
  offset: number;
  bytes: number;
  segments: WantedSegment[];
}

/** What must be read of the packs to have all wanted pages. */
export function rangesOf(packs: readonly Pack[], wanted: Wanted): Range[] {
  const ranges: Range[] = [];
  const starts = firstPages(packs);
  let from = 0;
  for (const [i, { key, segments }] of packs.entries()) {
    let firstNumber = starts[i] ?? 0;
    let offset = 0;
    let range: Range | undefined;
    for (const [at, segment] of segments.entries()) {
      let to = from;
      while (wanted.number(to) < firstNumber + segment.pages) to += 1;
      if (to > from) {
        const end = offset + segment.bytes;
        if (!range || offset > range.offset + range.bytes + maxGapBytes || end > range.offset + maxRangeBytes) {
          range = { packKey: key, offset, bytes: 0, segments: [] };
          ranges.push(range);
        }
        range.segments.push({ segment, at, offset: offset - range.offset, firstNumber, from, to });
        range.bytes = end - range.offset;
        from = to;
      }
      firstNumber += segment.pages;
      offset += segment.bytes;
    }
  }
  return ranges;
}
