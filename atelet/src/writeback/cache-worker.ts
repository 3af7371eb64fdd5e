import { Worker } from "node:worker_threads";
import { scriptUrl } from "@substrate/lib/script-url.ts";
import { type CacheReply, type CacheRequest, type CacheResult } from "./worker.ts";
import { type CacheState, type Eviction, type PageCache, type PinnedFile } from "./page-cache.ts";

export interface AsyncPageCache {
  inspect(file: PinnedFile): Promise<CacheState>;
  writeOut(file: PinnedFile): Promise<boolean>;
  evict(file: PinnedFile): Promise<Eviction>;
}

interface Call {
  request: CacheRequest;
  resolve: (result: CacheResult) => void;
  reject: (error: Error) => void;
}

/** R14: how many files are written out or dropped at once. */
const CHANGES = 2;

/**
 * The kernel's page cache behind worker threads: a call that blocks on a slow disk never blocks the event loop (R10). One
 * thread looks, so that looking never waits for a disk; two write out and drop, first come, first served (R14). What
 * waits for its turn is a name, no open file (R13).
 */
export class CacheWorkers implements AsyncPageCache {
  readonly #looking = new CacheThread();
  readonly #changing = Array.from({ length: CHANGES }, () => new CacheThread());
  readonly #queue: Call[] = [];
  #nextId = 1;

  inspect(file: PinnedFile): Promise<CacheState> {
    return this.#look({ id: this.#nextId++, operation: "inspect", file });
  }

  /** See `heldUnlinkedBytes`. */
  heldUnlinkedBytes(dir: string): Promise<number> {
    return this.#look({ id: this.#nextId++, operation: "heldUnlinkedBytes", dir });
  }

  writeOut(file: PinnedFile): Promise<boolean> {
    return this.#change("writeOut", file);
  }

  evict(file: PinnedFile): Promise<Eviction> {
    return this.#change("evict", file);
  }

  async close(): Promise<void> {
    await Promise.all([this.#looking, ...this.#changing].map((thread) => thread.close()));
  }

  #look<T extends CacheResult>(request: CacheRequest): Promise<T> {
    return this.#call(request, (call) => {
      void this.#looking.do(call);
    });
  }

  #change<T extends "writeOut" | "evict">(operation: T, file: PinnedFile): Promise<ReturnType<PageCache[T]>> {
    return this.#call({ id: this.#nextId++, operation, file }, (call) => {
      this.#queue.push(call);
      this.#next();
    });
  }

  #next(): void {
    for (const thread of this.#changing.filter(({ idle }) => idle)) {
      const call = this.#queue.shift();
      if (call === undefined) return;
      void thread.do(call).then(() => {
        this.#next();
      });
    }
  }

  #call<T extends CacheResult>(request: CacheRequest, begin: (call: Call) => void): Promise<T> {
    return new Promise((resolve, reject) => {
      // what a worker answers is what its operation returns
      begin({ request, resolve: resolve as (result: CacheResult) => void, reject });
    });
  }
}

/** Started at its first call: most nodes never write out anything. */
class CacheThread {
  #worker: Worker | undefined;
  readonly #calls = new Map<number, Call & { done: () => void }>();

  get idle(): boolean {
    return this.#calls.size === 0;
  }

  /** Resolves when it is over, whichever way. */
  do(call: Call): Promise<void> {
    this.#worker ??= this.#start();
    const worker = this.#worker;
    return new Promise((done) => {
      this.#calls.set(call.request.id, { ...call, done });
      worker.postMessage(call.request);
    });
  }

  async close(): Promise<void> {
    await this.#worker?.terminate();
  }

  #start(): Worker {
    const worker = new Worker(scriptUrl(new URL("./worker.ts", import.meta.url), "writeback-worker.mjs"));
    worker.unref();
    worker.on("message", (reply: CacheReply) => {
      const call = this.#calls.get(reply.id);
      this.#calls.delete(reply.id);
      if ("error" in reply) call?.reject(new Error(reply.error));
      else call?.resolve(reply.result);
      call?.done();
    });
    // an uncaught error ends the thread; the next call begins another
    worker.on("error", (error: Error) => {
      this.#worker = undefined;
      for (const { reject, done } of this.#calls.values()) {
        reject(error);
        done();
      }
      this.#calls.clear();
    });
    return worker;
  }
}
