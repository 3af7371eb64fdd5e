import { Worker } from "node:worker_threads";
import { scriptUrl } from "@substrate/lib/script-url.ts";
import { type CacheReply, type CacheRequest } from "./worker.ts";
import { type CacheState, type PinnedFile } from "./page-cache.ts";

export interface AsyncPageCache {
  inspect(file: PinnedFile): Promise<CacheState>;
  writeOut(file: PinnedFile): Promise<void>;
}

/** The kernel's page cache behind a worker thread: a call that blocks on a slow disk never blocks the event loop (R10). */
export class CacheWorker implements AsyncPageCache {
  readonly #worker: Worker;
  readonly #waiting = new Map<
    number,
    { resolve: (state: CacheState | undefined) => void; reject: (e: Error) => void }
  >();
  #nextId = 1;

  constructor() {
    this.#worker = new Worker(scriptUrl(new URL("./worker.ts", import.meta.url), "writeback-worker.mjs"));
    this.#worker.unref();
    this.#worker.on("message", (reply: CacheReply) => {
      const waiting = this.#waiting.get(reply.id);
      this.#waiting.delete(reply.id);
      if ("error" in reply) waiting?.reject(new Error(reply.error));
      else waiting?.resolve(reply.state);
    });
    this.#worker.on("error", (error: Error) => {
      for (const { reject } of this.#waiting.values()) reject(error);
      this.#waiting.clear();
    });
  }

  async inspect(file: PinnedFile): Promise<CacheState> {
    const state = await this.#call("inspect", file);
    if (state === undefined) throw new Error(`no state of ${file.path}: this is a bug`);
    return state;
  }

  async writeOut(file: PinnedFile): Promise<void> {
    await this.#call("writeOut", file);
  }

  async close(): Promise<void> {
    await this.#worker.terminate();
  }

  #call(operation: CacheRequest["operation"], file: PinnedFile): Promise<CacheState | undefined> {
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, operation, file } satisfies CacheRequest);
    });
  }
}
