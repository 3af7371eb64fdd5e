import { Worker } from "node:worker_threads";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { scriptUrl } from "@substrate/lib/script-url.ts";
import { type Copied } from "../copy.ts";
import { checkKey, checkPrefix } from "../keys.ts";
import { type BucketSettings } from "../settings.ts";
import { type ObjectStore, type PutCondition, type StoredObject } from "../store.ts";
import { defaultLimits, type S3Limits } from "./limits.ts";
import { type S3Answer, type S3Method, type S3Request, type S3ThreadData } from "./protocol.ts";

interface Pending {
  resolve: (result: unknown) => void;
  reject: (error: Error) => void;
}

/**
 * A bucket whose client works on a thread of its own: digests, signatures and streams cost up to two seconds of a core
 * per GiB, which would delay every wake on the event loop; and a node without a bucket never loads the SDK.
 */
export class S3Thread implements ObjectStore {
  readonly #data: S3ThreadData;
  readonly #pending = new Map<number, Pending>();
  #worker: Worker | undefined;
  #nextId = 1;
  #closed = false;

  private constructor(data: S3ThreadData) {
    this.#data = data;
  }

  /** Throws STORE_UNAVAILABLE if the bucket can't be used. */
  static async open(settings: BucketSettings, limits: S3Limits = defaultLimits): Promise<S3Thread> {
    const thread = new S3Thread({ settings, limits });
    try {
      await thread.#ask("open", []);
      return thread;
    } catch (error) {
      await thread.close();
      throw error;
    }
  }

  /** Ends the thread; what is under way fails. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#worker?.terminate();
  }

  async get(key: string): Promise<StoredObject | undefined> {
    const found = await this.#call("get", checkKey(key));
    // a Buffer comes through a port as a plain Uint8Array
    if (found === undefined) return undefined;
    const { buffer, byteOffset, byteLength } = found.body;
    return { body: Buffer.from(buffer, byteOffset, byteLength), etag: found.etag };
  }

  async put(key: string, body: Buffer, condition?: PutCondition): Promise<string | undefined> {
    return this.#call("put", checkKey(key), body, condition);
  }

  async putFile(key: string, path: string): Promise<Copied> {
    return this.#call("putFile", checkKey(key), path);
  }

  async getFile(key: string, path: string, expected: Copied): Promise<void> {
    return this.#call("getFile", checkKey(key), path, { sizeBytes: expected.sizeBytes, sha256: expected.sha256 });
  }

  async putBytes(key: string, bytes: ArrayBuffer, lengthBytes = bytes.byteLength): Promise<ArrayBuffer> {
    // the worker calls the method of the same type
    return this.#ask("putBytes", [checkKey(key), bytes, lengthBytes], [bytes]) as Promise<ArrayBuffer>;
  }

  async getRange(
    key: string,
    offset: number,
    lengthBytes: number,
    into = new ArrayBuffer(lengthBytes),
  ): Promise<ArrayBuffer> {
    return this.#ask("getRange", [checkKey(key), offset, lengthBytes, into], [into]) as Promise<ArrayBuffer>;
  }

  async copy(from: string, to: string): Promise<void> {
    return this.#call("copy", checkKey(from), checkKey(to));
  }

  async list(prefix: string): Promise<string[]> {
    return this.#call("list", checkPrefix(prefix));
  }

  async delete(key: string): Promise<void> {
    return this.#call("delete", checkKey(key));
  }

  async deleteAll(keys: readonly string[]): Promise<void> {
    return this.#call("deleteAll", keys.map(checkKey));
  }

  #call<M extends S3Method>(method: M, ...args: Parameters<ObjectStore[M]>): ReturnType<ObjectStore[M]> {
    // the worker calls the method of the same type
    return this.#ask(method, args) as ReturnType<ObjectStore[M]>;
  }

  #ask(method: S3Request["method"], args: unknown[], transfer: ArrayBuffer[] = []): Promise<unknown> {
    if (this.#closed) return Promise.reject(this.#ended("is closed"));
    const id = this.#nextId;
    this.#nextId += 1;
    const worker = (this.#worker ??= this.#start());
    return new Promise((resolve, reject) => {
      if (this.#pending.size === 0) worker.ref();
      this.#pending.set(id, { resolve, reject });
      worker.postMessage({ id, method, args } satisfies S3Request, transfer);
    });
  }

  #start(): Worker {
    const script = scriptUrl(new URL("./s3-worker.ts", import.meta.url), "s3-worker.mjs");
    const worker = new Worker(script, { workerData: this.#data });
    worker.on("message", (answer: S3Answer) => {
      const pending = this.#pending.get(answer.id);
      this.#pending.delete(answer.id);
      if (this.#pending.size === 0) worker.unref();
      if ("result" in answer) pending?.resolve(answer.result);
      else pending?.reject(carried(answer.failed));
    });
    // a thread that died is started again by the next call
    worker.on("error", (error) => {
      this.#forget(worker, error);
    });
    worker.on("exit", () => {
      this.#forget(worker, undefined);
    });
    return worker;
  }

  #forget(worker: Worker, cause: unknown): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject } of pending) reject(this.#ended("ended", cause));
  }

  #ended(what: string, cause?: unknown): SubstrateError {
    return new SubstrateError("INTERNAL", `the thread of the store ${this.#data.settings.name} ${what}`, { cause });
  }
}

/** The thread's error as its caller sees it; its stack is the cause's. */
function carried({
  code,
  message,
  stack,
}: {
  code: SubstrateError["code"];
  message: string;
  stack: string | undefined;
}) {
  const cause = new Error(message);
  if (stack !== undefined) cause.stack = stack;
  return new SubstrateError(code, message, { cause });
}
