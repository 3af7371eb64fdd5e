import { stat } from "node:fs/promises";
import { join } from "node:path";
import { type AsyncPageCache } from "./cache-worker.ts";
import { isClean, pinFile } from "./page-cache.ts";

/** What of an image holds its memory; the rest is small. */
const PAGES_FILE = "pages.img";
const PAGE_BYTES = 4096;
/** An image of which less is in memory counts as uncached: reading around the cache then misses little of it. */
const CACHED_SHARE = 0.1;
/** A smaller one is read in a few milliseconds either way. */
const SMALL_BYTES = 4 * 2 ** 20;

/** How restores read images. */
export class ImageReads {
  readonly #cache: Pick<AsyncPageCache, "inspect">;

  constructor(cache: Pick<AsyncPageCache, "inspect">) {
    this.#cache = cache;
  }

  /**
   * R27: whether to read around the page cache. Only what is clean and hardly in it: a direct read of dirty pages has to
   * write them out first.
   */
  async direct(imageDir: string): Promise<boolean> {
    const path = join(imageDir, PAGES_FILE);
    const { size } = await stat(path);
    if (size < SMALL_BYTES) return false;
    const state = await this.#cache.inspect(await pinFile(path));
    return state !== "gone" && isClean(state) && state.cachedPages * PAGE_BYTES < size * CACHED_SHARE;
  }
}
