import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { mkdtemp, open, readdir, readFile, readlink, rename, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@substrate/lib/log.ts";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Loan } from "../ledger/contract.ts";
import { type AsyncPageCache, CacheWorkers } from "./cache-worker.ts";
import { type CacheState, type Eviction, pageCache, pinFile, type PinnedFile } from "./page-cache.ts";
import { type KernelCalls } from "./kernel-calls.ts";
import { WriteBehind } from "./write-behind.ts";
import { WriteBack } from "./writeback.ts";

const log = createLogger("test", "error");
const MIB = 2 ** 20;
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
  flushed?: () => void;
  evicted?: (outcome: Eviction) => void;
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
    flushed: options.flushed ?? (() => undefined),
    evicted: options.evicted ?? (() => undefined),
    gaveUp: options.gaveUp ?? (() => undefined),
    boundMs: options.boundMs ?? 60_000,
    signal: options.signal ?? new AbortController().signal,
  });
}

/** A kernel that tells what it was asked for, in MiB. */
function fakeKernel(options: { dirty?: number; writeback?: number; step?: () => void } = {}): {
  kernel: KernelCalls;
  asked: string[];
} {
  const { dirty = 0, writeback = 0, step } = options;
  const asked: string[] = [];
  const kernel: KernelCalls = {
    cachestat: () => ({ cached: 1, dirty, writeback }),
    dropFromCache: () => void asked.push("drop"),
    syncFileRange: (_fd, offset, count, what) => {
      asked.push(`${what} ${offset / MIB}+${count / MIB}`);
      step?.();
    },
  };
  return { kernel, asked };
}

/** A disk that never gets anything done, or only when told to write: then a file is clean after so many looks. */
class StuckCache implements AsyncPageCache {
  wroteOut: string[] = [];
  readonly #looks: number;
  readonly #looked = new Map<string, number>();
  constructor(looks = 0) {
    this.#looks = looks;
  }
  inspect({ path }: PinnedFile): Promise<CacheState> {
    const looked = this.#looked.get(path) ?? 0;
    if (this.wroteOut.includes(path)) this.#looked.set(path, looked + 1);
    const clean = this.wroteOut.includes(path) && looked >= this.#looks;
    return Promise.resolve({ cachedPages: 7, dirtyPages: clean ? 0 : 7, writebackPages: 0 });
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
    expect(before).toMatchObject({ cachedPages: 2048 });
    const l = loan();
    expect(await writeBack({ tight: true }).follow([path], l)).toBe("clean");
    expect(l.returned).toBe(1);
    expect(await worker.inspect({ path, dev, ino })).toEqual({ cachedPages: 2048, dirtyPages: 0, writebackPages: 0 });
  });

  it("R11: nothing here waits for a journal", async () => {
    const names = (await readdir(import.meta.dirname)).filter((name) => !name.endsWith(".test.ts"));
    const sources = await Promise.all(names.map((name) => readFile(join(import.meta.dirname, name), "utf8")));
    expect(sources.length).toBeGreaterThan(3);
    expect(sources.join("\n")).not.toMatch(/(fsync|datasync|syncfs)(Sync)?\(|\.sync\(/);
  });

  /** The real one, but what is there is dirty. */
  const neverClean = (): AsyncPageCache => ({
    inspect: async (file) => {
      const state = await worker.inspect(file);
      return state === "gone" ? state : { ...state, dirtyPages: 1 };
    },
    writeOut: (file) => worker.writeOut(file),
    evict: (file) => worker.evict(file),
  });

  it("R12: a deleted file counts as gone at once and its loan comes back", async () => {
    const path = join(dir, "pages.img");
    await writeFile(path, Buffer.alloc(2 ** 20, 1));
    const l = loan();
    const followed = writeBack({ cache: neverClean() }).follow([path], l);
    await rm(path);
    expect(await followed).toBe("gone");
    expect(l.returned).toBe(1);
  });

  it("R12: the loan comes back when the last of its files is clean or gone", async () => {
    const [first, second] = ["a", "b"].map((name) => join(dir, name));
    if (first === undefined || second === undefined) return;
    for (const path of [first, second]) await writeFile(path, "x");
    const l = loan();
    let looks = 0;
    const counting: AsyncPageCache = {
      ...neverClean(),
      inspect: (file) => {
        if (file.path === second) looks += 1;
        return neverClean().inspect(file);
      },
    };
    const followed = writeBack({ cache: counting }).follow([first, second], l);
    await rm(first);
    const looked = looks;
    await expect.poll(() => looks, { timeout: 10_000 }).toBeGreaterThan(looked + 2);
    expect(l.returned).toBe(0);
    await rm(second);
    expect(await followed).toBe("gone");
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

  it("R13: a path that names another file by now is skipped, and never written out or dropped", async () => {
    const path = join(dir, "pages.img");
    await writeFile(path, "old");
    const pinned = await pinFile(path);
    await writeFile(join(dir, "other"), "other");
    // a rename over a file would write the new one out at once (R22)
    await rm(path);
    await rename(join(dir, "other"), path);
    const { kernel, asked } = fakeKernel();
    const cache = pageCache(kernel);
    expect([cache.inspect(pinned), cache.writeOut(pinned), cache.evict(pinned)]).toEqual(["gone", false, "gone"]);
    expect(asked).toEqual([]);
    expect(await worker.inspect(pinned)).toBe("gone");
    cache.writeOut(await pinFile(path));
    expect(asked).toEqual(["start 0+64"]);
  });
});

describe("R18: what a restore has read", () => {
  async function cached(): Promise<{ path: string; pinned: PinnedFile }> {
    const path = join(dir, "pages.img");
    await writeFile(path, Buffer.alloc(2 ** 20, 1));
    return { path, pinned: await pinFile(path) };
  }

  it("stays in memory while there is room (R8)", async () => {
    const { path } = await cached();
    expect(await writeBack({ cache: new StuckCache() }).dropIfTight(path)).toBe("kept");
  });

  it("is dropped when memory is tight, and is gone if somebody deleted it", async () => {
    const { path, pinned } = await cached();
    const tight = writeBack({ tight: true });
    await tight.follow([path], loan());
    expect(await tight.dropIfTight(path)).toBe("evicted");
    expect(await worker.inspect(pinned)).toEqual({ cachedPages: 0, dirtyPages: 0, writebackPages: 0 });
    await rm(path);
    expect(await tight.dropIfTight(path)).toBe("gone");
  });

  it("is left alone while it is dirty or on its way to the disk: dropping it would begin its write-out", async () => {
    const { pinned } = await cached();
    for (const state of [{ dirty: 1 }, { writeback: 1 }]) {
      const { kernel, asked } = fakeKernel(state);
      expect(pageCache(kernel).evict(pinned)).toBe("not clean");
      expect(asked).toEqual([]);
    }
    const { kernel, asked } = fakeKernel();
    expect(pageCache(kernel).evict(pinned)).toBe("evicted");
    expect(asked).toEqual(["drop"]);
  });
});

describe("on a disk that does not answer", () => {
  /** A path whose opening stands still until somebody opens it for writing. */
  function standing(name: string): { path: string; release: () => Promise<void> } {
    const path = join(dir, name);
    execFileSync("mkfifo", [path]);
    return {
      path,
      release: async () => {
        await (await open(path, "w")).close();
      },
    };
  }

  it("R14, R13: two files are worked on at once, what waits is not open, and looking goes on (R10)", async () => {
    const slow = ["a", "b"].map(standing);
    const path = join(dir, "pages.img");
    await writeFile(path, "x");
    const pinned = await pinFile(path);
    try {
      const done: string[] = [];
      const pins = await Promise.all(slow.map((one) => pinFile(one.path)));
      const evictions = pins.map((pin) => worker.evict(pin).catch(() => done.push("slow")));
      const third = worker.writeOut(pinned).then(() => done.push("third"));
      for (let look = 0; look < 20; look += 1) {
        expect(await worker.inspect(pinned)).toMatchObject({ cachedPages: 1 });
      }
      const fds = (await readdir("/proc/self/fd")).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => ""));
      expect((await Promise.all(fds)).filter((target) => target.startsWith(path))).toEqual([]);
      expect(done).toEqual([]);
      await slow[0]?.release();
      await third;
      await slow[1]?.release();
      await Promise.all(evictions);
    } finally {
      await Promise.all(slow.map(({ release }) => Promise.race([release(), worker.close()])));
    }
  });
});

describe("R10, R28: a write-out", () => {
  /** What the kernel is asked for of a file of 150 MiB without data. */
  async function writtenOut(step: (path: string) => void): Promise<{ asked: string[]; whole: boolean }> {
    const path = join(dir, "large");
    const file = await open(path, "w");
    await file.truncate(150 * MIB);
    await file.close();
    const { kernel, asked } = fakeKernel({
      step: () => {
        step(path);
      },
    });
    return { whole: pageCache(kernel).writeOut(await pinFile(path)), asked };
  }

  it("is asked for once, 64 MiB at a time, and not waited for", async () => {
    const asked = ["start 0+64", "start 64+64", "start 128+64"];
    expect(await writtenOut(() => undefined)).toEqual({ whole: true, asked });
  });

  it("ends at the next step when the file has lost its name", async () => {
    const { whole, asked } = await writtenOut((path) => {
      rmSync(path, { force: true });
    });
    expect([whole, asked.length]).toEqual([false, 1]);
  });
});

it("R7: without a loan each chunk is given to the disk at once, and the one before it is waited for", () => {
  const { kernel, asked } = fakeKernel();
  const behind = new WriteBehind(kernel, 0);
  for (let mib = 0; mib < 20; mib += 1) behind.wrote(mib * MIB, MIB);
  behind.end();
  expect(asked).toEqual(["start 0+8", "start 8+8", "finish 0+8", "start 16+4"]);
  const scattered = new WriteBehind(kernel, 0);
  asked.length = 0;
  for (const mib of [40, 8, 9, 41, 42, 43, 44, 45, 0]) scattered.wrote(mib * MIB, MIB);
  expect(asked).toEqual(["start 40+1", "start 8+2", "start 41+5"]);
});

it("counts what deleted files below the folder hold that somebody has open", async () => {
  const path = join(dir, "held");
  const file = await open(path, "w");
  await file.writeFile(Buffer.alloc(2 ** 20, 1));
  await file.datasync();
  expect(await worker.heldUnlinkedBytes(dir)).toBe(0);
  await rm(path);
  expect(await worker.heldUnlinkedBytes(dir)).toBe(2 ** 20);
  await file.close();
  expect(await worker.heldUnlinkedBytes(dir)).toBe(0);
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

  it("R10, R25: a write-out is begun once for each file, however long it takes, and counted", async () => {
    const paths = ["a", "b"].map((name) => join(dir, name));
    for (const path of paths) await writeFile(path, "x");
    const slow = new StuckCache(3);
    let flushed = 0;
    const follower = writeBack({ cache: slow, tight: true, flushed: () => (flushed += 1) });
    expect(await follower.follow(paths, loan())).toBe("clean");
    expect([slow.wroteOut, flushed]).toEqual([paths, 2]);
  });

  it("R25: every file that was to be dropped is counted, with what became of it", async () => {
    const path = join(dir, "f");
    await writeFile(path, "x");
    const outcomes: Eviction[] = [];
    const evicted = (outcome: Eviction): void => void outcomes.push(outcome);
    await writeBack({ cache: new StuckCache(), tight: true, evicted }).dropIfTight(path);
    await writeBack({ cache: new StuckCache(), evicted }).dropIfTight(path);
    expect(outcomes).toEqual(["not clean"]);
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

  it("R15: on a disk that takes nothing, or fails, it is bounded, too", async () => {
    const path = join(dir, "f");
    await writeFile(path, "x");
    const never = (): Promise<never> => new Promise(() => undefined);
    const failing = (): Promise<never> => Promise.reject(new Error("EIO"));
    for (const writeOut of [never, failing]) {
      const broken = Object.assign(new StuckCache(), { writeOut });
      const l = loan();
      expect(await writeBack({ cache: broken, tight: true, boundMs: 50 }).follow([path], l)).toBe("gave up");
      expect(l.returned).toBe(1);
    }
  });
});
