import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@substrate/lib/log.ts";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ImageReads } from "./image-reads.ts";
import { type CacheState, type Eviction } from "./page-cache.ts";

const SIZE_BYTES = 8 * 2 ** 20;
const ALL_PAGES = SIZE_BYTES / 4096;

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "image-reads-"));
  await writeFile(join(dir, "pages.img"), Buffer.alloc(SIZE_BYTES));
});
afterEach(() => rm(dir, { recursive: true }));

function reads(state: CacheState, options: { tight: boolean } = { tight: false }) {
  const evicted: string[] = [];
  const wanted: number[] = [];
  const images = new ImageReads({
    cache: {
      inspect: () => Promise.resolve(state),
      evict: ({ path }) => {
        evicted.push(path);
        return Promise.resolve<Eviction>("evicted");
      },
    },
    tight: (bytes) => {
      wanted.push(bytes);
      return Promise.resolve(options.tight);
    },
    log: createLogger("test", "error"),
  });
  return { images, evicted, wanted };
}

const clean = (cachedPages: number): CacheState => ({ cachedPages, dirtyPages: 0, writebackPages: 0 });

describe("R27: a restore reads", () => {
  it("around the cache what is clean and not in it", async () => {
    expect(await reads(clean(0)).images.direct(dir)).toBe(true);
    expect(await reads(clean(ALL_PAGES / 20)).images.direct(dir)).toBe(true);
  });

  it("through the cache what is in it, dirty, on its way to the disk, or small", async () => {
    expect(await reads(clean(ALL_PAGES)).images.direct(dir)).toBe(false);
    expect(await reads({ cachedPages: 1, dirtyPages: 1, writebackPages: 0 }).images.direct(dir)).toBe(false);
    expect(await reads({ cachedPages: 1, dirtyPages: 0, writebackPages: 1 }).images.direct(dir)).toBe(false);
    await writeFile(join(dir, "pages.img"), "small");
    expect(await reads(clean(0)).images.direct(dir)).toBe(false);
  });

  it("nothing that is not there", async () => {
    await rm(join(dir, "pages.img"));
    await expect(reads(clean(0)).images.direct(dir)).rejects.toThrow("ENOENT");
  });
});

describe("R8, R18: what was read completely", () => {
  it("stays in memory while nobody wants that", async () => {
    const { images, evicted, wanted } = reads(clean(ALL_PAGES));
    await images.loaded(dir);
    expect(wanted).toEqual([SIZE_BYTES]);
    expect(evicted).toEqual([]);
  });

  it("goes where memory is tight", async () => {
    const { images, evicted } = reads(clean(ALL_PAGES), { tight: true });
    await images.loaded(dir);
    expect(evicted).toEqual([join(dir, "pages.img")]);
  });

  it("is no error when it is gone by then", async () => {
    await rm(join(dir, "pages.img"));
    await reads(clean(0), { tight: true }).images.loaded(dir);
  });
});
