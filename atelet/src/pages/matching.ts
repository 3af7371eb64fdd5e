import { HASH_WORDS, HashMap, Spread } from "./hash-map.ts";
import { type Job } from "./job.ts";
import { HASH_BYTES, type PageHash } from "./page-hash.ts";
import { ZERO_PAGE } from "./page-index.ts";
import { type TableFile } from "./table-file.ts";

/** Instead of a stored page's number: it may not be shared. */
export const NOT_SHARED = 0xffff_fffe;

/** Hashes that are looked at in one pass: 21 MiB of map. An image of 2 GiB, with its base, needs two passes. */
const hashesPerPass = 768 << 10;

/** An earlier generation: its table, and for each of its pages the stored one's number, ZERO_PAGE or NOT_SHARED. */
export interface Known {
  table: TableFile;
  pages: Uint32Array;
  /** Numbers of stored pages are below this. */
  storedPages: number;
}

/**
 * For each page of the image: ZERO_PAGE, the number of a stored page with the same content, or `storedPages` more than
 * the number of the first page of the image with this content (so: its own, if it is new).
 */
export async function match(
  job: Job,
  image: TableFile,
  known: Known | undefined,
  hash: PageHash,
  perPass = hashesPerPass,
): Promise<Uint32Array<ArrayBuffer>> {
  const storedPages = known?.storedPages ?? 0;
  const sources = new Uint32Array(image.pages);
  const all = image.pages + (known?.table.pages ?? 0);
  const passes = Math.max(1, Math.ceil(all / perPass));
  const spread = new Spread();
  const zero = wordsOf(hash.zero);
  const isZero = (words: Uint32Array, at: number): boolean =>
    words[at] === zero[0] && words[at + 1] === zero[1] && words[at + 2] === zero[2] && words[at + 3] === zero[3];
  for (let pass = 0; pass < passes; pass += 1) {
    // the margin is many standard deviations
    const map = new HashMap(passes === 1 ? all : Math.min(all, Math.ceil(1.1 * (all / passes)) + 1000));
    const isOurs = (words: Uint32Array, at: number): boolean =>
      passes === 1 || (spread.of(words, at) >>> 8) % passes === pass;
    if (known) {
      for (const { firstPage, hashes } of known.table.chunks()) {
        const words = wordsOf(hashes);
        for (let at = 0, page = firstPage; at < words.length; at += HASH_WORDS, page += 1) {
          const stored = known.pages[page] ?? NOT_SHARED;
          if (stored < NOT_SHARED && isOurs(words, at)) map.add(words, at, stored);
        }
        await job.breathe();
      }
    }
    for (const { firstPage, hashes } of image.chunks()) {
      const words = wordsOf(hashes);
      for (let at = 0, page = firstPage; at < words.length; at += HASH_WORDS, page += 1) {
        if (!isOurs(words, at)) continue;
        sources[page] = isZero(words, at) ? ZERO_PAGE : map.add(words, at, storedPages + page);
      }
      await job.breathe();
    }
  }
  return sources;
}

function wordsOf(hashes: Buffer): Uint32Array {
  return new Uint32Array(hashes.buffer, hashes.byteOffset, (hashes.length / HASH_BYTES) * HASH_WORDS);
}
