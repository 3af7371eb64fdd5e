import koffi from "koffi";
import { createHash } from "node:crypto";
import { closeSync, fsyncSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { parentPort } from "node:worker_threads";
import { type CopyAnswer, type Copied, type CopyRequest } from "./copy.ts";
import { Flock } from "./flock.ts";

const bufferBytes = 1 << 20;
/** R7's chunk: large enough for sequential writes, small enough that two of them dirty do not matter. */
const chunkBytes = 16 << 20;

// linux/fs.h and linux/fadvise.h
const waitBeforeWriteWaitAfter = 7;
const write = 2;
const fadviseDontNeed = 4;

class SideError extends Error {
  readonly side: "from" | "to";

  constructor(side: "from" | "to", cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.side = side;
  }
}

function at<T>(side: "from" | "to", action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw new SideError(side, error);
  }
}

const flock = new Flock();
const libc = koffi.load("libc.so.6");
// Both only hint at when to write; fsync at the end is what reports errors. So their results are not looked at.
const syncFileRange = libc.func("int sync_file_range(int fd, int64_t offset, int64_t nbytes, unsigned int flags)");
const fadvise = libc.func("int posix_fadvise(int fd, int64_t offset, int64_t len, int advice)");

function writeAll(fd: number, buffer: Buffer, length: number): void {
  for (let done = 0; done < length;) done += writeSync(fd, buffer, done, length - done);
}

function pump(source: number, target: number, durable: boolean): Copied {
  const hash = createHash("sha256");
  const buffer = Buffer.allocUnsafe(bufferBytes);
  let sizeBytes = 0;
  let chunkStart = 0;
  for (;;) {
    const length = at("from", () => readSync(source, buffer, 0, bufferBytes, null));
    if (length === 0) break;
    hash.update(buffer.subarray(0, length));
    at("to", () => {
      writeAll(target, buffer, length);
    });
    sizeBytes += length;
    if (durable && sizeBytes - chunkStart >= chunkBytes) {
      syncFileRange(target, chunkStart, chunkBytes, write);
      if (chunkStart > 0) syncFileRange(target, chunkStart - chunkBytes, chunkBytes, waitBeforeWriteWaitAfter);
      chunkStart += chunkBytes;
    }
  }
  if (durable) {
    at("to", () => {
      fsyncSync(target);
    });
    fadvise(target, 0, 0, fadviseDontNeed);
  }
  return { sizeBytes, sha256: hash.digest("hex") };
}

/** The target must not exist; what a failure leaves of it is removed. */
function copy(request: CopyRequest): Copied {
  const source = at("from", () => openSync(request.from, "r"));
  try {
    const target = at("to", () => openSync(request.to, "wx", 0o600));
    try {
      // Tells the store's clean-up that this file has a living writer.
      if (request.durable) flock.try(target);
      return pump(source, target, request.durable);
    } catch (error) {
      rmSync(request.to, { force: true });
      throw error;
    } finally {
      closeSync(target);
    }
  } finally {
    closeSync(source);
  }
}

function answer(request: CopyRequest): CopyAnswer {
  try {
    return { copied: copy(request) };
  } catch (error) {
    if (!(error instanceof SideError)) throw error;
    const cause = error.cause;
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
    return { failed: { side: error.side, code, message: error.message } };
  }
}

const port = parentPort;
if (!port) throw new Error("copy-worker.ts runs as a worker thread only");
port.on("message", (request: CopyRequest) => {
  port.postMessage(answer(request));
});
