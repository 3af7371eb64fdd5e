import { closeSync, fstatSync, openSync } from "node:fs";
import koffi from "koffi";

/** x86-64 and arm64 alike; Linux 6.5 and newer. */
const SYS_CACHESTAT = 451;
const SYNC_FILE_RANGE_WRITE = 2;
/** R10, R28: between two steps it is looked whether the file still has a name. */
const STEP_BYTES = 64 * 2 ** 20;

/** A file as it was when its writing ended (R13). */
export interface PinnedFile {
  path: string;
  dev: number;
  ino: number;
}

/** Pages of 4 KiB not yet on disk; "gone" when the path no longer names the pinned file. */
export type CacheState = { unwrittenPages: number } | "gone";

export interface PageCache {
  inspect(file: PinnedFile): CacheState;
  /** Starts the write-out of all dirty pages, without waiting for it to end; stops when the file lost its last name. */
  writeOut(file: PinnedFile): void;
}

/** The kernel's page cache. Blocking: to be called in a worker thread only (facts: errno is lost in koffi's async calls). */
export function kernelPageCache(): PageCache {
  const libc = koffi.load("libc.so.6");
  const cachestat = libc.func("long syscall(long number, int fd, void *range, void *result, unsigned int flags)") as (
    ...args: unknown[]
  ) => number;
  const syncFileRange = libc.func("int sync_file_range(int fd, int64 offset, int64 count, unsigned int flags)") as (
    ...args: unknown[]
  ) => number;
  // A length of zero means: to the end of the file.
  const wholeFile = Buffer.alloc(16);

  return {
    inspect(file) {
      const fd = openPinned(file);
      if (fd === undefined) return "gone";
      try {
        // struct cachestat: nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted
        const result = Buffer.alloc(40);
        if (cachestat(SYS_CACHESTAT, fd, wholeFile, result, 0) !== 0) {
          throw new Error(`cachestat of ${file.path} failed with errno ${koffi.errno()}`);
        }
        return { unwrittenPages: Number(result.readBigUInt64LE(8) + result.readBigUInt64LE(16)) };
      } finally {
        closeSync(fd);
      }
    },

    writeOut(file) {
      const fd = openPinned(file);
      if (fd === undefined) return;
      try {
        const { size } = fstatSync(fd);
        for (let offset = 0; offset < size && fstatSync(fd).nlink > 0; offset += STEP_BYTES) {
          if (syncFileRange(fd, offset, STEP_BYTES, SYNC_FILE_RANGE_WRITE) !== 0) {
            throw new Error(`sync_file_range of ${file.path} failed with errno ${koffi.errno()}`);
          }
        }
      } finally {
        closeSync(fd);
      }
    },
  };
}

function openPinned(file: PinnedFile): number | undefined {
  let fd: number;
  try {
    fd = openSync(file.path, "r");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
  const { dev, ino } = fstatSync(fd);
  if (dev === file.dev && ino === file.ino) return fd;
  closeSync(fd);
  return undefined;
}
