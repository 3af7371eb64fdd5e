import {
  CopyObjectCommand,
  DeleteObjectCommand,
  DeleteObjectsCommand,
  GetObjectCommand,
  HeadObjectCommand,
  paginateListObjectsV2,
  PutObjectCommand,
  UploadPartCopyCommand,
  type CompletedPart,
} from "@aws-sdk/client-s3";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Copied } from "../copy.ts";
import { checkKey, checkPrefix } from "../keys.ts";
import { type BucketSettings } from "../settings.ts";
import { type ObjectStore, type PutCondition, type StoredObject } from "../store.ts";
import { Buffers } from "./buffers.ts";
import { S3Connection } from "./connection.ts";
import { downloadFile } from "./download.ts";
import { fetchInto } from "./range.ts";
import { isConditionFailed, isMissing } from "./failure.ts";
import { defaultLimits, partBytesFor, type S3Limits } from "./limits.ts";
import { putPayload } from "./payload.ts";
import { probe } from "./probe.ts";
import { multipart, uploadFile } from "./upload.ts";

/** As many as one request takes. */
const deletedAtOnce = 1_000;

/** A bucket as an object store. An etag is the server's. All memory for data is that of the limits' parts. */
export class S3Store implements ObjectStore {
  readonly #connection: S3Connection;
  // apart, so that uploads never keep a wake's download waiting
  readonly #up: Buffers;
  readonly #down: Buffers;

  private constructor(connection: S3Connection) {
    this.#connection = connection;
    this.#up = new Buffers(connection.limits.parallelParts);
    this.#down = new Buffers(connection.limits.parallelParts);
  }

  /**
   * Looks whether the bucket is there, may be used and has conditional writes, and removes parts that killed writers
   * left. Throws STORE_UNAVAILABLE.
   */
  static async open(settings: BucketSettings, limits: S3Limits = defaultLimits): Promise<S3Store> {
    const connection = new S3Connection(settings, limits);
    try {
      await connection.about("opening it", () => probe(connection));
      return new S3Store(connection);
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  close(): Promise<void> {
    this.#connection.close();
    return Promise.resolve();
  }

  async get(key: string): Promise<StoredObject | undefined> {
    return this.#about(`reading ${checkKey(key)}`, async ({ client }) => {
      try {
        const bound = { ...this.#connection.small(), whole: true };
        const answer = await client.send(new GetObjectCommand(this.#object(key)), bound);
        const body = await answer.Body?.transformToByteArray();
        if (body === undefined || answer.ETag === undefined) throw new Error("an answer without a body or an etag");
        return { body: Buffer.from(body.buffer, body.byteOffset, body.byteLength), etag: answer.ETag };
      } catch (error) {
        if (isMissing(error)) return undefined;
        throw error;
      }
    });
  }

  async put(key: string, body: Buffer, condition?: PutCondition): Promise<string | undefined> {
    return this.#about(`writing ${checkKey(key)}`, async ({ client }) => {
      const conditions =
        condition === undefined
          ? {}
          : "ifMatch" in condition
            ? { IfMatch: condition.ifMatch }
            : { IfNoneMatch: condition.ifNoneMatch };
      try {
        const command = new PutObjectCommand({
          ...this.#object(key),
          ...conditions,
          Body: body,
          ContentLength: body.length,
        });
        const { ETag } = await client.send(command, this.#connection.small());
        if (ETag === undefined) throw new Error("an answer without an etag");
        return ETag;
      } catch (error) {
        if (condition !== undefined && isConditionFailed(error)) return undefined;
        // of an object that isn't there
        if (condition !== undefined && "ifMatch" in condition && isMissing(error)) return undefined;
        throw error;
      }
    });
  }

  async putFile(key: string, path: string): Promise<Copied> {
    return this.#about(`writing ${checkKey(key)}`, (connection) => uploadFile(connection, this.#up, key, path));
  }

  async getFile(key: string, path: string, expected: Copied): Promise<void> {
    return this.#about(`reading ${checkKey(key)}`, (connection) =>
      downloadFile(connection, this.#down, key, path, expected),
    );
  }

  async putBytes(key: string, bytes: ArrayBuffer, lengthBytes = bytes.byteLength): Promise<ArrayBuffer> {
    await this.#about(`writing ${checkKey(key)}`, async ({ client }) => {
      const command = putPayload({ ...this.#object(key), Body: new Uint8Array(bytes, 0, lengthBytes) });
      await client.send(command, this.#connection.large());
    });
    // all of it was handed to the kernel
    return bytes;
  }

  async getRange(
    key: string,
    offset: number,
    lengthBytes: number,
    into = new ArrayBuffer(lengthBytes),
  ): Promise<ArrayBuffer> {
    await this.#about(`reading ${checkKey(key)}`, (connection) =>
      fetchInto(connection, key, offset, new Uint8Array(into, 0, lengthBytes)),
    );
    return into;
  }

  async copy(from: string, to: string): Promise<void> {
    return this.#about(`copying ${checkKey(from)} to ${checkKey(to)}`, async ({ client, settings }) => {
      const head = await client
        .send(new HeadObjectCommand(this.#object(from)), this.#connection.small())
        .catch((error: unknown) => {
          if (!isMissing(error)) throw error;
          const message = `${from} is missing from the store ${settings.name} (${settings.url})`;
          throw new SubstrateError("SNAPSHOT_DAMAGED", message, { cause: error });
        });
      const source = `${settings.bucket}/${this.#connection.key(from)}`;
      const sizeBytes = head.ContentLength ?? 0;
      if (sizeBytes > this.#connection.limits.copyBytes) return this.#copyParts(source, to, sizeBytes);
      await client.send(new CopyObjectCommand({ ...this.#object(to), CopySource: source }), this.#connection.large());
    });
  }

  async list(prefix: string): Promise<string[]> {
    return this.#about(`listing ${checkPrefix(prefix)}`, async ({ client, settings }) => {
      const keys: string[] = [];
      const under = { Bucket: settings.bucket, Prefix: this.#connection.key(prefix) };
      const pages = paginateListObjectsV2({ client }, under, this.#connection.large());
      for await (const page of pages) {
        for (const { Key } of page.Contents ?? []) if (Key !== undefined) keys.push(Key);
      }
      return keys.map((key) => key.slice(settings.prefix.length)).sort();
    });
  }

  async delete(key: string): Promise<void> {
    await this.#about(`deleting ${checkKey(key)}`, async ({ client }) => {
      await client.send(new DeleteObjectCommand(this.#object(key)), this.#connection.small());
    });
  }

  async deleteAll(keys: readonly string[]): Promise<void> {
    for (let start = 0; start < keys.length; start += deletedAtOnce) {
      const some = keys.slice(start, start + deletedAtOnce).map(checkKey);
      await this.#about(`deleting ${some.length} objects, of them ${some[0] ?? ""}`, async ({ client, settings }) => {
        const Objects = some.map((key) => ({ Key: this.#connection.key(key) }));
        const command = new DeleteObjectsCommand({ Bucket: settings.bucket, Delete: { Objects, Quiet: true } });
        const { Errors } = await client.send(command, this.#connection.large());
        const failed = Errors?.find(({ Code }) => Code !== "NoSuchKey");
        if (failed !== undefined) {
          throw new Error(`${failed.Key ?? ""}: ${failed.Code ?? ""} ${failed.Message ?? ""}`);
        }
      });
    }
  }

  async #copyParts(source: string, to: string, sizeBytes: number): Promise<void> {
    const partBytes = partBytesFor(sizeBytes, this.#connection.limits.copyBytes);
    await multipart(this.#connection, to, {}, async (target) => {
      const parts: CompletedPart[] = [];
      for (let start = 0; start < sizeBytes; start += partBytes) {
        const number = parts.length + 1;
        const range = `bytes=${start}-${Math.min(start + partBytes, sizeBytes) - 1}`;
        const part = { ...target, PartNumber: number, CopySource: source, CopySourceRange: range };
        const copied = await this.#connection.client.send(new UploadPartCopyCommand(part), this.#connection.large());
        parts.push({ PartNumber: number, ETag: copied.CopyPartResult?.ETag });
      }
      return parts;
    });
  }

  #object(key: string): { Bucket: string; Key: string } {
    return { Bucket: this.#connection.settings.bucket, Key: this.#connection.key(key) };
  }

  #about<T>(what: string, action: (connection: S3Connection) => Promise<T>): Promise<T> {
    return this.#connection.about(what, () => action(this.#connection));
  }
}
