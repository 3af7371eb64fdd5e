import koffi from "koffi";

/** x86-64 and arm64 alike; Linux 6.5 and newer. */
const SYS_CACHESTAT = 451;
/** linux/fs.h: wait for what is on its way, start what is dirty, wait for that. */
const SYNC_FILE_RANGE = { waitBefore: 1, write: 2, waitAfter: 4 } as const;
const POSIX_FADV_DONTNEED = 4;

/** What Node has no call for. All block: in worker threads only (koffi loses errno in its own asynchronous calls). */
export interface KernelCalls {
  /** Pages of the file that are in memory. */
  cachestat(fd: number): { cached: number; dirty: number; writeback: number };
  /** `start`: begins the write-out of what is dirty. `finish`: returns when the range is on the disk. */
  syncFileRange(fd: number, offset: number, count: number, what: "start" | "finish"): void;
  /** Drops all clean pages of the file. On a dirty file the kernel starts its write-out (R18). */
  dropFromCache(fd: number): void;
}

export function kernelCalls(): KernelCalls {
  const libc = koffi.load("libc.so.6");
  const syscall = libc.func("long syscall(long number, int fd, void *range, void *result, unsigned int flags)") as (
    ...args: unknown[]
  ) => number;
  const syncFileRange = libc.func("int sync_file_range(int fd, int64 offset, int64 count, unsigned int flags)") as (
    ...args: unknown[]
  ) => number;
  const fadvise = libc.func("int posix_fadvise(int fd, int64 offset, int64 length, int advice)") as (
    ...args: unknown[]
  ) => number;
  // A length of zero means: to the end of the file.
  const wholeFile = Buffer.alloc(16);

  return {
    cachestat(fd) {
      // struct cachestat: nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted
      const result = Buffer.alloc(40);
      if (syscall(SYS_CACHESTAT, fd, wholeFile, result, 0) !== 0) throw failed("cachestat", koffi.errno());
      const [cached = 0, dirty = 0, writeback = 0] = [0, 8, 16].map((at) => Number(result.readBigUInt64LE(at)));
      return { cached, dirty, writeback };
    },
    syncFileRange(fd, offset, count, what) {
      const { waitBefore, write, waitAfter } = SYNC_FILE_RANGE;
      const flags = what === "start" ? write : waitBefore | write | waitAfter;
      if (syncFileRange(fd, offset, count, flags) !== 0) throw failed("sync_file_range", koffi.errno());
    },
    dropFromCache(fd) {
      // returns the error's number, and sets no errno
      const errno = fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      if (errno !== 0) throw failed("posix_fadvise", errno);
    },
  };
}

function failed(call: string, errno: number): Error {
  return new Error(`${call} failed with errno ${errno}`);
}
