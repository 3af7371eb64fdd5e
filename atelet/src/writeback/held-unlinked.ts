import { readdirSync, readlinkSync, statSync } from "node:fs";

const DELETED = " (deleted)";

/**
 * Disk space of deleted files below `dir` that some process has open. Blocking, some ten milliseconds on a busy machine:
 * for a worker thread.
 */
export function heldUnlinkedBytes(dir: string): number {
  const seen = new Map<string, number>();
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    const fds = `/proc/${pid}/fd`;
    for (const fd of unlessGone(() => readdirSync(fds)) ?? []) {
      const path = `${fds}/${fd}`;
      const target = unlessGone(() => readlinkSync(path));
      if (target?.startsWith(`${dir}/`) !== true || !target.endsWith(DELETED)) continue;
      const stats = unlessGone(() => statSync(path));
      if (stats?.nlink === 0) seen.set(`${stats.dev}:${stats.ino}`, stats.blocks * 512);
    }
  }
  return [...seen.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** Processes end and files are closed while one looks; those of other users are none of ours. */
function unlessGone<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (code === "ENOENT" || code === "ESRCH" || code === "EACCES" || code === "EBADF") return undefined;
    throw error;
  }
}
