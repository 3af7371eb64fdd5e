import { Worker } from "node:worker_threads";
import { scriptUrl } from "@substrate/lib/script-url.ts";
import { type DiskReply, type DiskRequest } from "./disk-worker.ts";
import { type LocalBytes } from "./local-bytes.ts";

interface Call {
  resolve: (result: LocalBytes | number) => void;
  reject: (error: Error) => void;
}

/** Adds up files on a thread of its own, started at its first call: folders of images have many. */
export class DiskThread {
  #worker: Worker | undefined;
  readonly #calls = new Map<number, Call>();
  #nextId = 1;

  async local(dir: string): Promise<LocalBytes> {
    return (await this.#call("local", dir)) as LocalBytes;
  }

  async snapshots(dir: string): Promise<number> {
    return (await this.#call("snapshots", dir)) as number;
  }

  async below(dir: string): Promise<number> {
    return (await this.#call("below", dir)) as number;
  }

  async close(): Promise<void> {
    await this.#worker?.terminate();
  }

  #call(operation: DiskRequest["operation"], dir: string): Promise<LocalBytes | number> {
    this.#worker ??= this.#start();
    const worker = this.#worker;
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      worker.postMessage({ id, operation, dir } satisfies DiskRequest);
    });
  }

  #start(): Worker {
    const worker = new Worker(scriptUrl(new URL("./disk-worker.ts", import.meta.url), "disk-worker.mjs"));
    worker.unref();
    worker.on("message", (reply: DiskReply) => {
      const call = this.#calls.get(reply.id);
      this.#calls.delete(reply.id);
      if ("error" in reply) call?.reject(new Error(reply.error));
      else call?.resolve(reply.result);
    });
    // an uncaught error ends the thread; the next call begins another
    worker.on("error", (error: Error) => {
      this.#worker = undefined;
      for (const { reject } of this.#calls.values()) reject(error);
      this.#calls.clear();
    });
    return worker;
  }
}
