// One setup at a time in a checkout: npm ci empties node_modules, and another's would be started from it meanwhile.
// Plain JavaScript without dependencies, as local/setup.mjs.
import { spawnSync } from "node:child_process";
import { closeSync, openSync, readFileSync, truncateSync, writeSync } from "node:fs";

/** flock(1) ends with it when the lock was not to be had. */
const HELD = 1;

/**
 * Holds the flock(2) of `path` while `work` runs. flock(1) takes it on a descriptor that this process keeps, so the
 * kernel drops it when this process ends, however it ends: a dead holder is never waited for. A child that must not run
 * beside another setup even when this process is killed gets the descriptor that `work` is called with.
 *
 * @throws after `waitSeconds`, naming who holds it.
 */
export function withSetupLock(path, { waitSeconds, say }, work) {
  const fd = openSync(path, "a+", 0o600);
  try {
    const take = (...how) => flock(fd, how);
    if (!take("--nonblock")) {
      say(`another setup runs in this checkout (pid ${holder(path)}), waiting at most ${waitSeconds} s for it`);
      if (!take("--wait", String(waitSeconds))) {
        throw new Error(
          `another setup (pid ${holder(path)}) has held ${path} for ${waitSeconds} s: end it and try again`,
        );
      }
    }
    truncateSync(path);
    writeSync(fd, String(process.pid));
    return work(fd);
  } finally {
    closeSync(fd);
  }
}

/** What is spawned later does not inherit the descriptor: Node opens files with O_CLOEXEC. */
function flock(fd, how) {
  const { status, error, stderr } = spawnSync("flock", ["--exclusive", ...how, "3"], {
    stdio: ["ignore", "ignore", "pipe", fd],
    encoding: "utf8",
  });
  if (status === 0) return true;
  if (status === HELD) return false;
  const why = error === undefined ? stderr.trim() : error.message;
  throw new Error(`cannot lock with flock (Debian package util-linux): ${why}`);
}

/** It is written by the holder, right after it has the lock. */
function holder(path) {
  return readFileSync(path, "utf8") || "unknown";
}
