import { createHash } from "node:crypto";
import { open, rm, type FileHandle } from "node:fs/promises";
import { type Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { GetObjectCommand } from "@aws-sdk/client-s3";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Copied } from "../copy.ts";
import { errnoOf } from "../folder.ts";
import { type Buffers } from "./buffers.ts";
import { type S3Connection } from "./connection.ts";
import { isMissing, nameOf } from "./failure.ts";

/** Pauses before a part whose stream broke is fetched again; before its first byte the SDK tries again by itself. */
const pausesMs = [100, 1_000];

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
        await fetchPart(connection, target, start, buffer, failed.signal);
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

async function fetchPart(
  connection: S3Connection,
  target: Target,
  start: number,
  buffer: Buffer,
  signal: AbortSignal,
): Promise<void> {
  const bound = connection.large(signal);
  for (let attempt = 0; ; attempt += 1) {
    try {
      await fetchOnce(connection, target, start, buffer, bound);
      return;
    } catch (error) {
      const pauseMs = pausesMs[attempt];
      if (pauseMs === undefined || error instanceof SubstrateError || bound.abortSignal.aborted) throw error;
      if (!brokenStream.includes(nameOf(error))) throw error;
      await delay(pauseMs, undefined, { signal: bound.abortSignal });
    }
  }
}

/** What a stream fails with that a new try may mend. */
export const brokenStream = [
  "ECONNRESET",
  "EPIPE",
  "ETIMEDOUT",
  "TimeoutError",
  "ERR_STREAM_PREMATURE_CLOSE",
  "ShortBody",
];

async function fetchOnce(
  connection: S3Connection,
  { key, expected }: Target,
  start: number,
  buffer: Buffer,
  bound: { abortSignal: AbortSignal; requestTimeout: number },
): Promise<void> {
  const range = buffer.length === 0 ? {} : { Range: `bytes=${start}-${start + buffer.length - 1}` };
  const answer = await connection.client
    .send(new GetObjectCommand({ Bucket: connection.settings.bucket, Key: connection.key(key), ...range }), bound)
    .catch((error: unknown) => {
      if (isMissing(error)) throw damaged(connection, key, "it is missing");
      if (nameOf(error) === "InvalidRange") {
        throw damaged(connection, key, `it is shorter than the ${expected.sizeBytes} bytes that were written`);
      }
      throw error;
    });
  const total = Number(answer.ContentRange?.split("/")[1] ?? answer.ContentLength);
  const body = answer.Body as Readable | undefined;
  if (body === undefined || total !== expected.sizeBytes) {
    body?.destroy();
    throw damaged(connection, key, `it has ${total} bytes, written were ${expected.sizeBytes}`);
  }
  const stop = (): void => {
    body.destroy(Object.assign(new Error("not done in time"), { code: "TimeoutError" }));
  };
  bound.abortSignal.addEventListener("abort", stop, { once: true });
  try {
    let done = 0;
    for await (const chunk of body as AsyncIterable<Buffer>) {
      if (done + chunk.length > buffer.length) throw damaged(connection, key, "a range of it came longer than asked");
      done += chunk.copy(buffer, done);
    }
    if (done === buffer.length) return;
    throw Object.assign(new Error(`${done} of ${buffer.length} bytes came`), { code: "ShortBody" });
  } finally {
    bound.abortSignal.removeEventListener("abort", stop);
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

function damaged({ settings }: S3Connection, key: string, what: string): SubstrateError {
  const message = `${key} in the store ${settings.name} (${settings.url}) is damaged: ${what}`;
  return new SubstrateError("SNAPSHOT_DAMAGED", message);
}
