import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ObjectStore, type PutCondition, type StoredObject } from "./store.ts";

/**
 * A store in memory for tests of what is done in which order: every call passes `before`, which may wait, or throw for a
 * process or a store that ends there.
 */
export class MemoryStore implements ObjectStore {
  readonly objects: Map<string, Buffer>;
  readonly #before: (call: string, key: string) => Promise<void> | void;

  /** @param objects of another one, which it shares. */
  constructor(
    before: (call: string, key: string) => Promise<void> | void = () => undefined,
    objects = new Map<string, Buffer>(),
  ) {
    this.#before = before;
    this.objects = objects;
  }

  async get(key: string): Promise<StoredObject | undefined> {
    await this.#before("get", key);
    const body = this.objects.get(key);
    return body && { body, etag: etagOf(body) };
  }

  async put(key: string, body: Buffer, condition?: PutCondition): Promise<string | undefined> {
    await this.#before("put", key);
    const present = this.objects.get(key);
    const holds =
      condition === undefined ||
      ("ifMatch" in condition ? present !== undefined && etagOf(present) === condition.ifMatch : present === undefined);
    if (!holds) return undefined;
    this.objects.set(key, body);
    return etagOf(body);
  }

  async putFile(key: string, path: string): Promise<{ sizeBytes: number; sha256: string }> {
    await this.#before("putFile", key);
    const body = await readFile(path);
    this.objects.set(key, body);
    return { sizeBytes: body.length, sha256: etagOf(body) };
  }

  async getFile(key: string, path: string, expected: { sizeBytes: number; sha256: string }): Promise<void> {
    await this.#before("getFile", key);
    const body = this.objects.get(key);
    if (body === undefined || etagOf(body) !== expected.sha256) throw damaged(key);
    await writeFile(path, body);
  }

  async putBytes(key: string, bytes: ArrayBuffer, lengthBytes = bytes.byteLength): Promise<ArrayBuffer> {
    await this.#before("putBytes", key);
    this.objects.set(key, Buffer.from(bytes.slice(0, lengthBytes)));
    return bytes;
  }

  async getRange(
    key: string,
    offset: number,
    lengthBytes: number,
    into = new ArrayBuffer(lengthBytes),
  ): Promise<ArrayBuffer> {
    await this.#before("getRange", key);
    const body = this.objects.get(key);
    if (body === undefined || body.length < offset + lengthBytes) throw damaged(key);
    new Uint8Array(into).set(body.subarray(offset, offset + lengthBytes));
    return into;
  }

  async copy(from: string, to: string): Promise<void> {
    await this.#before("copy", to);
    const body = this.objects.get(from);
    if (body === undefined) throw damaged(from);
    this.objects.set(to, body);
  }

  async list(prefix: string): Promise<string[]> {
    await this.#before("list", prefix);
    return [...this.objects.keys()].filter((key) => key.startsWith(prefix)).sort();
  }

  async delete(key: string): Promise<void> {
    await this.#before("delete", key);
    this.objects.delete(key);
  }

  async deleteAll(keys: readonly string[]): Promise<void> {
    for (const key of keys) await this.delete(key);
  }
}

function damaged(key: string): SubstrateError {
  return new SubstrateError("SNAPSHOT_DAMAGED", `${key} is damaged`);
}

function etagOf(body: Buffer): string {
  return createHash("sha256").update(body).digest("hex");
}
