import { stat } from "node:fs/promises";
import { join } from "node:path";
import { type Logger } from "@substrate/lib/log.ts";
import { type AsyncPageCache } from "./cache-worker.ts";
import { isClean, pinFile } from "./page-cache.ts";

/** What of an image holds its memory; the rest is small. */
const PAGES_FILE = "pages.img";
const PAGE_BYTES = 4096;
/** An image of which less is in memory counts as uncached: reading around the cache then misses little of it. */
const CACHED_SHARE = 0.1;
/** A smaller one is read in a few milliseconds either way. */
const SMALL_BYTES = 4 * 2 ** 20;

export interface ImageReadsOptions {
  cache: Pick<AsyncPageCache, "inspect" | "evict">;
  /** Whether so much memory is wanted elsewhere. */
  tight: (bytes: number) => Promise<boolean>;
  log: Logger;
}

/** How restores read images, and what of them stays in memory afterwards. */
export class ImageReads {
  readonly #options: ImageReadsOptions;

  constructor(options: ImageReadsOptions) {
    this.#options = options;
  }

  /**
   * R27: whether to read around the page cache. Only what is clean and hardly in it: a direct read of dirty pages has to
   * write them out first.
   */
  async direct(imageDir: string): Promise<boolean> {
    const path = join(imageDir, PAGES_FILE);
    const { size } = await stat(path);
    if (size < SMALL_BYTES) return false;
    const state = await this.#options.cache.inspect(await pinFile(path));
    return state !== "gone" && isClean(state) && state.cachedPages * PAGE_BYTES < size * CACHED_SHARE;
  }

  /**
   * R8, R18: its memory has been read completely. It stays in the page cache, unless memory is wanted and it is on the disk.
   * A failure is logged: it costs memory that the kernel takes back when it must.
   */
  async loaded(imageDir: string): Promise<void> {
    const path = join(imageDir, PAGES_FILE);
    try {
      const { size } = await stat(path);
      if (size < SMALL_BYTES || !(await this.#options.tight(size))) return;
      const eviction = await this.#options.cache.evict(await pinFile(path));
      this.#options.log.debug("a restored image was to leave memory", { imageDir, eviction });
    } catch (error) {
      this.#options.log.warn("a restored image could not be dropped from memory", { imageDir, error });
    }
  }
}
