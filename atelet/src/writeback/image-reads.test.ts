import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ImageReads } from "./image-reads.ts";
import { type CacheState } from "./page-cache.ts";

const SIZE_BYTES = 8 * 2 ** 20;
const ALL_PAGES = SIZE_BYTES / 4096;

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "image-reads-"));
  await writeFile(join(dir, "pages.img"), Buffer.alloc(SIZE_BYTES));
});
afterEach(() => rm(dir, { recursive: true }));

function reads(state: CacheState): ImageReads {
  return new ImageReads({ inspect: () => Promise.resolve(state) });
}

const clean = (cachedPages: number): CacheState => ({ cachedPages, dirtyPages: 0, writebackPages: 0 });

describe("R27: a restore reads", () => {
  it("around the cache what is clean and not in it", async () => {
    expect(await reads(clean(0)).direct(dir)).toBe(true);
    expect(await reads(clean(ALL_PAGES / 20)).direct(dir)).toBe(true);
  });

  it("through the cache what is in it, dirty, on its way to the disk, or small", async () => {
    expect(await reads(clean(ALL_PAGES)).direct(dir)).toBe(false);
    expect(await reads({ cachedPages: 1, dirtyPages: 1, writebackPages: 0 }).direct(dir)).toBe(false);
    expect(await reads({ cachedPages: 1, dirtyPages: 0, writebackPages: 1 }).direct(dir)).toBe(false);
    await writeFile(join(dir, "pages.img"), "small");
    expect(await reads(clean(0)).direct(dir)).toBe(false);
  });

  it("nothing that is not there", async () => {
    await rm(join(dir, "pages.img"));
    await expect(reads(clean(0)).direct(dir)).rejects.toThrow("ENOENT");
  });
});
