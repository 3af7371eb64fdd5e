import koffi from "koffi";
import { closeSync, openSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

const LOCK_EX = 2;
const LOCK_NB = 4;
const EWOULDBLOCK = 11;
const POLL_MS = 200;

/** A lock that the kernel drops when its holder ends, however it ends. */
export interface FileLock {
  release(): void;
}

/** The exclusive flock(2) of `path` (made if it is missing), or undefined while another process holds it. */
export function tryLock(path: string): FileLock | undefined {
  const flock = koffi.load("libc.so.6").func("int flock(int fd, int operation)") as (fd: number, op: number) => number;
  const fd = openSync(path, "a", 0o600);
  if (flock(fd, LOCK_EX | LOCK_NB) === 0) {
    return {
      release: () => {
        closeSync(fd);
      },
    };
  }
  const errno = koffi.errno();
  closeSync(fd);
  if (errno !== EWOULDBLOCK) throw new Error(`cannot lock ${path}: errno ${errno}`);
  return undefined;
}

/** Waits for the lock at most `deadlineMs`; `onWait` is called once if it is not free at once. */
export async function lock(path: string, deadlineMs: number, onWait: () => void): Promise<FileLock> {
  const end = performance.now() + deadlineMs;
  for (let first = true; ; first = false) {
    const held = tryLock(path);
    if (held !== undefined) return held;
    if (first) onWait();
    if (performance.now() > end) {
      throw new Error(`${path} is still locked by another process after ${deadlineMs / 1000} s; end it and try again`);
    }
    await delay(POLL_MS);
  }
}
