import { closeSync, fstatSync, openSync, type Stats } from "node:fs";
import { stat } from "node:fs/promises";
import { type KernelCalls } from "./kernel-calls.ts";

/** R10, R28: between two steps it is looked whether the file still has a name. */
const STEP_BYTES = 64 * 2 ** 20;

/** A file as it was when its writing ended (R13). */
export interface PinnedFile {
  path: string;
  dev: number;
  ino: number;
}

/** @throws if the path is missing (R13). */
export async function pinFile(path: string): Promise<PinnedFile> {
  const { dev, ino } = await stat(path);
  return { path, dev, ino };
}

/** Pages of 4 KiB of a file that are in memory; "gone" when the path no longer names the pinned file. */
export type CacheState =
  | {
      /** All that are in memory, the others among them. */
      cachedPages: number;
      dirtyPages: number;
      writebackPages: number;
    }
  | "gone";

/** Neither dirty nor on the way to the disk, or gone: what was lent for it can come back (R12). */
export function isClean(state: CacheState): boolean {
  return state === "gone" || state.dirtyPages + state.writebackPages === 0;
}

/** What became of a wish to drop a file from memory: R18 forbids it while it isn't clean. */
export type Eviction = "evicted" | "not clean" | "gone";

export interface PageCache {
  inspect(file: PinnedFile): CacheState;
  /**
   * Starts the write-out of all dirty pages once, 64 MiB at a time, without waiting for its end; stops when the file lost
   * its last name (R10, R28). Returns whether it did so to the end.
   */
  writeOut(file: PinnedFile): boolean;
  /** Drops a clean file from memory (R18). */
  evict(file: PinnedFile): Eviction;
}

/**
 * The kernel's page cache. Blocking: to be called in a worker thread only. No file is open between two calls (R13); what
 * is opened here is closed here, where a close that waits for the disk keeps nobody (R28).
 */
export function pageCache(kernel: KernelCalls): PageCache {
  const inspect = (fd: number): Exclude<CacheState, "gone"> => {
    const { cached, dirty, writeback } = kernel.cachestat(fd);
    return { cachedPages: cached, dirtyPages: dirty, writebackPages: writeback };
  };
  return {
    inspect: (file) => withPinned<CacheState>(file, "gone", inspect),
    writeOut: (file) =>
      withPinned(file, false, (fd, { size }) => {
        for (let offset = 0; offset < size; offset += STEP_BYTES) {
          if (fstatSync(fd).nlink === 0) return false;
          kernel.syncFileRange(fd, offset, STEP_BYTES, "start");
        }
        return true;
      }),
    evict: (file) =>
      withPinned<Eviction>(file, "gone", (fd) => {
        if (!isClean(inspect(fd))) return "not clean";
        kernel.dropFromCache(fd);
        return "evicted";
      }),
  };
}

/** @param gone what is returned where the path names nothing, or another file by now. */
function withPinned<T>(file: PinnedFile, gone: T, use: (fd: number, stats: Stats) => T): T {
  let fd: number;
  try {
    fd = openSync(file.path, "r");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return gone;
    throw error;
  }
  try {
    const stats = fstatSync(fd);
    return stats.dev === file.dev && stats.ino === file.ino ? use(fd, stats) : gone;
  } finally {
    closeSync(fd);
  }
}
