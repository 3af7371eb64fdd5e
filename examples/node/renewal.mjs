// Tells a program that it goes on from a snapshot, so that it renews what two copies of one must not share.
import { closeSync, constants, openSync, readSync } from "node:fs";

const NOTICE = "/proc/gvisor/checkpoint";
const KERNEL = "/dev/urandom";

function openNotice() {
  try {
    // without O_NONBLOCK a read would block a thread of Node until the next snapshot, and process.exit() with it
    return openSync(NOTICE, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (error.code === "ENOENT") return undefined; // outside of gVisor
    throw error;
  }
}

let notice = openNotice();

/** What the notice says: "restore" in a copy, "resume" in a process that just went on, undefined without a snapshot. */
function event() {
  if (notice === undefined) return undefined;
  const buffer = Buffer.alloc(16);
  try {
    return buffer.toString("utf8", 0, readSync(notice, buffer)).trim();
  } catch (error) {
    if (error.code === "EAGAIN") return undefined;
    throw error;
  }
}

/** Whether this process has been restored since the last call: one system call, for the beginning of each request. */
export function wasRestored() {
  const what = event();
  if (what === undefined) return false;
  closeSync(notice);
  notice = openNotice();
  return what === "restore";
}

const kernel = openSync(KERNEL, constants.O_RDONLY);

/**
 * Bytes of the kernel, which are never the same in two copies. crypto.randomBytes, randomUUID and getRandomValues take
 * theirs from a generator in the process's memory, which a snapshot copies and which Node cannot seed anew.
 */
export function randomBytes(size) {
  const bytes = Buffer.alloc(size);
  for (let filled = 0; filled < size;) filled += readSync(kernel, bytes, filled, size - filled, null);
  return bytes;
}
