import { createHash } from "node:crypto";
import { open, rm, type FileHandle } from "node:fs/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Copied } from "../copy.ts";
import { errnoOf } from "../folder.ts";
import { type Buffers } from "./buffers.ts";
import { type S3Connection } from "./connection.ts";
import { damaged, fetchInto } from "./range.ts";

interface Target {
  file: FileHandle;
  path: string;
  key: string;
  expected: Copied;
}

/** Fetches an object into a new file by parallel ranges. Throws SNAPSHOT_DAMAGED if size or digest differ. */
export async function downloadFile(
  connection: S3Connection,
  buffers: Buffers,
  key: string,
  path: string,
  expected: Copied,
): Promise<void> {
  const file = await open(path, "wx", 0o600).catch((error: unknown) => {
    throw unwritable(path, error);
  });
  try {
    const sha256 = await fetchParts(connection, buffers, { file, path, key, expected });
    if (sha256 !== expected.sha256) {
      throw damaged(connection, key, `it has sha256 ${sha256}, written was ${expected.sha256}`);
    }
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}

/** @returns the sha256 of all. Parts come as they like; they are digested in order. */
async function fetchParts(connection: S3Connection, buffers: Buffers, target: Target): Promise<string> {
  const { key } = target;
  const { sizeBytes } = target.expected;
  const { partBytes } = connection.limits;
  const hash = createHash("sha256");
  const failed = new AbortController();
  const parts: Promise<void>[] = [];
  let digested = Promise.resolve();
  try {
    // an empty object has a part too: whether it is there is to be seen
    for (let start = 0; (start < sizeBytes || start === 0) && !failed.signal.aborted; start += partBytes) {
      const { buffer, giveBack } = await buffers.take(Math.min(partBytes, sizeBytes - start));
      const before = digested;
      const part = (async () => {
        await fetchInto(connection, key, start, buffer, { sizeBytes, signal: failed.signal });
        await writeAll(target, buffer, start);
        await before;
        hash.update(buffer);
      })().finally(giveBack);
      part.catch(() => {
        failed.abort();
      });
      digested = part;
      parts.push(part);
    }
    await Promise.all(parts);
    return hash.digest("hex");
  } finally {
    failed.abort();
    await Promise.allSettled(parts);
  }
}

async function writeAll({ file, path }: Target, buffer: Buffer, start: number): Promise<void> {
  for (let done = 0; done < buffer.length;) {
    const { bytesWritten } = await file
      .write(buffer, done, buffer.length - done, start + done)
      .catch((error: unknown) => {
        throw unwritable(path, error);
      });
    done += bytesWritten;
  }
}

function unwritable(path: string, error: unknown): SubstrateError {
  const full = ["ENOSPC", "EDQUOT"].includes(errnoOf(error));
  const reason = error instanceof Error ? error.message : String(error);
  const fix = full ? ": free space on that disk" : "";
  return new SubstrateError(full ? "NO_ROOM" : "INTERNAL", `writing ${path}: ${reason}${fix}`, { cause: error });
}
