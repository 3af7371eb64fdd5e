import { mkdtemp, open, readdir, readlink, rename, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@substrate/lib/log.ts";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Loan } from "../ledger/contract.ts";
import { type AsyncPageCache, CacheWorkers } from "./cache-worker.ts";
import { type CacheState, type Eviction, type PinnedFile } from "./page-cache.ts";
import { WriteBack } from "./writeback.ts";

const log = createLogger("test", "error");
let dir: string;
let worker: CacheWorkers;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "writeback-"));
  worker = new CacheWorkers();
});
afterEach(async () => {
  await worker.close();
  await rm(dir, { recursive: true });
});

function loan(): Loan & { returned: number } {
  return {
    bytes: 1,
    returned: 0,
    return() {
      this.returned += 1;
    },
  };
}

function writeBack(options: {
  gaveUp?: () => void;
  cache?: AsyncPageCache;
  tight?: boolean;
  boundMs?: number;
  signal?: AbortSignal;
}): WriteBack {
  return new WriteBack({
    cache: options.cache ?? worker,
    tight: () => Promise.resolve(options.tight ?? false),
    log,
    flushed: () => undefined,
    gaveUp: options.gaveUp ?? (() => undefined),
    boundMs: options.boundMs ?? 60_000,
    signal: options.signal ?? new AbortController().signal,
  });
}

/** A disk that never gets anything done, or only when told to write. */
class StuckCache implements AsyncPageCache {
  wroteOut: string[] = [];
  inspect(file: PinnedFile): Promise<CacheState> {
    const dirtyPages = this.wroteOut.includes(file.path) ? 0 : 7;
    return Promise.resolve({ cachedPages: 7, dirtyPages, writebackPages: 0 });
  }
  writeOut(file: PinnedFile): Promise<boolean> {
    this.wroteOut.push(file.path);
    return Promise.resolve(true);
  }
  evict(): Promise<Eviction> {
    return Promise.resolve("not clean");
  }
}

describe("the real page cache", () => {
  it("R11: sees a dirty file, and sees it clean after write-out, without any fsync of ours", async () => {
    const path = join(dir, "pages.img");
    await writeFile(path, Buffer.alloc(8 * 2 ** 20, 1));
    const { dev, ino } = await stat(path);
    const before = await worker.inspect({ path, dev, ino });
    expect(before).toEqual({ cachedPages: 2048, dirtyPages: 2048, writebackPages: 0 });
    const l = loan();
    expect(await writeBack({ tight: true }).follow([path], l)).toBe("clean");
    expect(l.returned).toBe(1);
    expect(await worker.inspect({ path, dev, ino })).toEqual({ cachedPages: 2048, dirtyPages: 0, writebackPages: 0 });
  });

  it("R12: a deleted file counts as gone at once and its loan comes back", async () => {
    const path = join(dir, "pages.img");
    await writeFile(path, Buffer.alloc(2 ** 20, 1));
    const l = loan();
    const followed = writeBack({}).follow([path], l);
    await rm(path);
    expect(["gone", "clean"]).toContain(await followed);
    expect(l.returned).toBe(1);
  });

  it("R12, R13: nothing is open while a file is followed", async () => {
    const path = join(dir, "pages.img");
    await writeFile(path, "x");
    let polls = 0;
    const watching: AsyncPageCache = {
      inspect: async (file) => {
        await worker.inspect(file);
        return { cachedPages: 1, dirtyPages: ++polls < 3 ? 1 : 0, writebackPages: 0 };
      },
      writeOut: (file) => worker.writeOut(file),
      evict: (file) => worker.evict(file),
    };
    const followed = writeBack({ cache: watching, tight: true }).follow([path], loan());
    await expect.poll(() => polls).toBeGreaterThan(0);
    const open = await Promise.all(
      (await readdir("/proc/self/fd")).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => "")),
    );
    expect(open.filter((target) => target.startsWith(path))).toEqual([]);
    await followed;
  });

  it("R13: a path that names another file by now is skipped, and never written out", async () => {
    const path = join(dir, "pages.img");
    await writeFile(path, "old");
    const { dev, ino } = await stat(path);
    await writeFile(join(dir, "other"), "other");
    // a rename over a file would write the new one out at once (R22)
    await rm(path);
    await rename(join(dir, "other"), path);
    expect(await worker.inspect({ path, dev, ino })).toBe("gone");
    const dirty = await stat(path);
    await worker.writeOut({ path, dev, ino });
    expect(await worker.inspect({ path, dev: dirty.dev, ino: dirty.ino })).toEqual({
      cachedPages: 1,
      dirtyPages: 1,
      writebackPages: 0,
    });
  });
});

describe("rules", () => {
  it("R13: a missing path fails at once and the loan is returned", async () => {
    const l = loan();
    await expect(writeBack({}).follow([join(dir, "missing")], l)).rejects.toThrow(/ENOENT/);
    expect(l.returned).toBe(1);
  });

  it("R3: nothing is written out unless memory is tight", async () => {
    const path = join(dir, "f");
    await (await open(path, "w")).close();
    const relaxed = new StuckCache();
    await writeBack({ cache: relaxed, boundMs: 60 }).follow([path], loan());
    expect(relaxed.wroteOut).toEqual([]);
    const tight = new StuckCache();
    expect(await writeBack({ cache: tight, tight: true }).follow([path], loan())).toBe("clean");
    expect(tight.wroteOut).toEqual([path]);
  });

  it("R15: polling is bounded; then the loan returns", async () => {
    const path = join(dir, "f");
    await (await open(path, "w")).close();
    const l = loan();
    let overdue = 0;
    const follower = writeBack({ cache: new StuckCache(), boundMs: 50, gaveUp: () => (overdue += 1) });
    expect(await follower.follow([path], l)).toBe("gave up");
    expect([l.returned, overdue]).toEqual([1, 1]);
  });
});
