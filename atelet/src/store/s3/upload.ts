import { createHash, randomUUID } from "node:crypto";
import { open, type FileHandle } from "node:fs/promises";
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  HeadObjectCommand,
  type CompletedPart,
} from "@aws-sdk/client-s3";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Copied } from "../copy.ts";
import { type Buffers } from "./buffers.ts";
import { type S3Connection } from "./connection.ts";
import { nameOf } from "./failure.ts";
import { partBytesFor } from "./limits.ts";
import { putPayload, uploadPart } from "./payload.ts";

/** In an object's metadata: by which upload it came to be. */
const markName = "substrate-upload";

/** Stores a file: whole if it is one part, else in parallel parts. The object is there whole or not at all. */
export async function uploadFile(
  connection: S3Connection,
  buffers: Buffers,
  key: string,
  path: string,
): Promise<Copied> {
  const file = await open(path, "r").catch((error: unknown) => {
    throw unreadable(key, path, error);
  });
  try {
    const { size } = await file.stat();
    const partBytes = partBytesFor(size, connection.limits.partBytes);
    const source = { file, path, key, sizeBytes: size };
    return size <= partBytes
      ? await putWhole(connection, buffers, source)
      : await putParts(connection, buffers, source, partBytes);
  } finally {
    await file.close();
  }
}

interface Source {
  file: FileHandle;
  path: string;
  key: string;
  sizeBytes: number;
}

async function putWhole(connection: S3Connection, buffers: Buffers, source: Source): Promise<Copied> {
  const { buffer, giveBack } = await buffers.take(source.sizeBytes);
  try {
    await fill(source, buffer, 0);
    const object = { Bucket: connection.settings.bucket, Key: connection.key(source.key) };
    await connection.client.send(putPayload({ ...object, Body: buffer }), connection.large());
    return { sizeBytes: buffer.length, sha256: createHash("sha256").update(buffer).digest("hex") };
  } finally {
    giveBack();
  }
}

async function putParts(
  connection: S3Connection,
  buffers: Buffers,
  source: Source,
  partBytes: number,
): Promise<Copied> {
  const { key, sizeBytes } = source;
  const hash = createHash("sha256");
  await multipart(connection, key, { ChecksumAlgorithm: "CRC32" }, async (target) => {
    const failed = new AbortController();
    const parts: Promise<CompletedPart>[] = [];
    try {
      for (let start = 0; start < sizeBytes && !failed.signal.aborted; start += partBytes) {
        const { buffer, giveBack } = await buffers.take(Math.min(partBytes, sizeBytes - start));
        try {
          await fill(source, buffer, start);
          hash.update(buffer);
        } catch (error) {
          giveBack();
          throw error;
        }
        const part = sendPart(connection, target, parts.length + 1, buffer, failed.signal).finally(giveBack);
        parts.push(part);
        part.catch(() => {
          failed.abort();
        });
      }
      return await Promise.all(parts);
    } finally {
      failed.abort();
      await Promise.allSettled(parts);
    }
  });
  return { sizeBytes, sha256: hash.digest("hex") };
}

/** What names an upload of parts to the server. */
export interface UploadTarget {
  Bucket: string;
  Key: string;
  UploadId: string;
}

async function sendPart(
  connection: S3Connection,
  target: UploadTarget,
  number: number,
  body: Buffer,
  signal: AbortSignal,
): Promise<CompletedPart> {
  const sent = await connection.client.send(
    uploadPart({ ...target, PartNumber: number, Body: body }),
    connection.large(signal),
  );
  // What the server answered: never what it lists, which may be a part that was cut.
  return {
    PartNumber: number,
    ETag: sent.ETag,
    ...(sent.ChecksumCRC32 === undefined ? {} : { ChecksumCRC32: sent.ChecksumCRC32 }),
  };
}

/**
 * Makes an object of parts. What checksum parts have is to be said first, and at the end again with each of them. Should `send` or the end of it fail, the parts are removed; those that a killed process
 * leaves go when a store is opened a day later.
 */
export async function multipart(
  connection: S3Connection,
  key: string,
  checksums: { ChecksumAlgorithm?: "CRC32" },
  send: (target: UploadTarget) => Promise<CompletedPart[]>,
): Promise<void> {
  const { client, settings } = connection;
  const object = { Bucket: settings.bucket, Key: connection.key(key) };
  const mark = randomUUID();
  const created = await client.send(
    new CreateMultipartUploadCommand({ ...object, ...checksums, Metadata: { [markName]: mark } }),
    connection.small(),
  );
  if (created.UploadId === undefined) {
    throw new SubstrateError("STORE_UNAVAILABLE", `the store ${settings.name} gave no id for an upload of ${key}`);
  }
  const target = { ...object, UploadId: created.UploadId };
  try {
    const parts = await send(target);
    await client.send(
      new CompleteMultipartUploadCommand({ ...target, MultipartUpload: { Parts: parts } }),
      connection.large(),
    );
  } catch (error) {
    // An end that was repeated because its answer got lost finds its upload gone, and the object there.
    if (nameOf(error) === "NoSuchUpload" && (await markOf(connection, object)) === mark) return;
    // What failed is what is told; parts that stay go as those of a killed process.
    await client.send(new AbortMultipartUploadCommand(target), connection.small()).catch(() => undefined);
    throw error;
  }
}

async function markOf(connection: S3Connection, object: { Bucket: string; Key: string }): Promise<string | undefined> {
  const head = await connection.client.send(new HeadObjectCommand(object), connection.small()).catch(() => undefined);
  return head?.Metadata?.[markName];
}

async function fill(source: Source, buffer: Buffer, start: number): Promise<void> {
  for (let done = 0; done < buffer.length;) {
    const { bytesRead } = await source.file
      .read(buffer, done, buffer.length - done, start + done)
      .catch((error: unknown) => {
        throw unreadable(source.key, source.path, error);
      });
    if (bytesRead === 0) {
      const message = `reading ${source.path} for ${source.key}: it became shorter than ${source.sizeBytes} bytes`;
      throw new SubstrateError("INTERNAL", message);
    }
    done += bytesRead;
  }
}

function unreadable(key: string, path: string, error: unknown): SubstrateError {
  const reason = error instanceof Error ? error.message : String(error);
  return new SubstrateError("INTERNAL", `reading ${path} for ${key}: ${reason}`, { cause: error });
}
