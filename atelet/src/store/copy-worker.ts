import koffi from "koffi";
import { createHash } from "node:crypto";
import { closeSync, fsyncSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { parentPort } from "node:worker_threads";
import {
  type Copied,
  type CopyRequest,
  type FileAnswer,
  type FileRequest,
  type Moved,
  type ReadRequest,
  type WriteRequest,
} from "./copy.ts";
import { Flock } from "./flock.ts";

const bufferBytes = 1 << 20;
/** R7's chunk: large enough for sequential writes, small enough that two of them dirty do not matter. */
const chunkBytes = 16 << 20;

// linux/fs.h and linux/fadvise.h
const waitBeforeWriteWaitAfter = 7;
const startWrite = 2;
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

function writeAll(fd: number, buffer: Uint8Array, length: number): void {
  for (let done = 0; done < length;) done += writeSync(fd, buffer, done, length - done);
}

/** Reads to the end. @param take what to do with each piece. */
function readAll(source: number, take: (piece: Buffer) => void): Copied {
  const hash = createHash("sha256");
  const buffer = Buffer.allocUnsafe(bufferBytes);
  let sizeBytes = 0;
  for (;;) {
    const length = at("from", () => readSync(source, buffer, 0, bufferBytes, null));
    if (length === 0) return { sizeBytes, sha256: hash.digest("hex") };
    const piece = buffer.subarray(0, length);
    hash.update(piece);
    take(piece);
    sizeBytes += length;
  }
}

function pump(source: number, target: number, durable: boolean): Copied {
  let writtenBytes = 0;
  let chunkStart = 0;
  const copied = readAll(source, (piece) => {
    at("to", () => {
      writeAll(target, piece, piece.length);
    });
    writtenBytes += piece.length;
    if (!durable || writtenBytes - chunkStart < chunkBytes) return;
    syncFileRange(target, chunkStart, chunkBytes, startWrite);
    if (chunkStart > 0) syncFileRange(target, chunkStart - chunkBytes, chunkBytes, waitBeforeWriteWaitAfter);
    chunkStart += chunkBytes;
  });
  if (durable) makeDurable(target);
  return copied;
}

function digest(from: string): Copied {
  const source = at("from", () => openSync(from, "r"));
  try {
    return readAll(source, () => undefined);
  } finally {
    closeSync(source);
  }
}

function makeDurable(target: number): void {
  at("to", () => {
    fsyncSync(target);
  });
  fadvise(target, 0, 0, fadviseDontNeed);
}

function copy({ from, to, durable }: CopyRequest): Copied {
  const source = at("from", () => openSync(from, "r"));
  try {
    return create(to, durable, (target) => pump(source, target, durable));
  } finally {
    closeSync(source);
  }
}

/** The target must not exist; what a failure leaves of it is removed. */
function create<T>(to: string, durable: boolean, fill: (target: number) => T): T {
  const target = at("to", () => openSync(to, "wx", 0o600));
  try {
    // Tells the store's clean-up that this file has a living writer.
    if (durable) flock.try(target);
    return fill(target);
  } catch (error) {
    rmSync(to, { force: true });
    throw error;
  } finally {
    closeSync(target);
  }
}

function write({ to, memory, lengthBytes }: WriteRequest): Moved {
  create(to, true, (target) => {
    at("to", () => {
      writeAll(target, new Uint8Array(memory), lengthBytes);
    });
    makeDurable(target);
  });
  return { memory, bytes: lengthBytes };
}

function read({ from, offset, lengthBytes, memory }: ReadRequest): Moved {
  const source = at("from", () => openSync(from, "r"));
  try {
    const bytes = new Uint8Array(memory);
    let done = 0;
    while (done < lengthBytes) {
      const more = at("from", () => readSync(source, bytes, done, lengthBytes - done, offset + done));
      if (more === 0) break;
      done += more;
    }
    return { memory, bytes: done };
  } finally {
    closeSync(source);
  }
}

function perform(request: FileRequest): Copied | Moved {
  if (request.kind === "copy") return copy(request);
  if (request.kind === "read") return read(request);
  if (request.kind === "digest") return digest(request.from);
  return write(request);
}

function answer(request: FileRequest): FileAnswer {
  try {
    return { done: perform(request) };
  } catch (error) {
    if (!(error instanceof SideError)) throw error;
    const cause = error.cause;
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
    return { failed: { side: error.side, code, message: error.message } };
  }
}

const port = parentPort;
if (!port) throw new Error("copy-worker.ts runs as a worker thread only");
port.on("message", (request: FileRequest) => {
  const answered = answer(request);
  const transfer = "done" in answered && "memory" in answered.done ? [answered.done.memory] : [];
  port.postMessage(answered, transfer);
});
