import { Worker } from "node:worker_threads";
import { type Copied, type CopyAnswer, type CopyRequest } from "./copy.ts";

/** A file could not be read (`from`) or written (`to`); `code` is the errno's name. */
export class CopyError extends Error {
  readonly side: "from" | "to";
  readonly code: string;

  constructor(side: "from" | "to", code: string, message: string) {
    super(message);
    this.side = side;
    this.code = code;
  }
}

interface Job {
  from: string;
  to: string;
  durable: boolean;
  resolve: (copied: Copied) => void;
  reject: (error: Error) => void;
}

/** Uploads of large images must not keep a wake's download waiting; more threads than this only share one disk. */
const maxWorkers = 3;

/** Copies files on worker threads that are started when needed and kept for the next one. */
export class Copier {
  readonly #idle: Worker[] = [];
  readonly #running = new Map<Worker, Job>();
  readonly #queue: Job[] = [];
  #closed = false;

  /** Throws CopyError. The target must not exist. See CopyRequest for `durable`. */
  copy(from: string, to: string, options: { durable: boolean }): Promise<Copied> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ from, to, durable: options.durable, resolve, reject });
      this.#next();
    });
  }

  /** Ends the threads; copies under way fail. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const job of this.#queue.splice(0)) job.reject(new Error(`copying ${job.from}: shutting down`));
    await Promise.all([...this.#idle, ...this.#running.keys()].map((worker) => worker.terminate()));
  }

  #next(): void {
    const job = this.#queue[0];
    if (!job) return;
    if (this.#closed) {
      this.#queue.shift();
      job.reject(new Error(`copying ${job.from}: shutting down`));
      return;
    }
    const worker = this.#idle.pop() ?? (this.#running.size < maxWorkers ? this.#start() : undefined);
    if (!worker) return;
    this.#queue.shift();
    this.#running.set(worker, job);
    worker.ref();
    const request: CopyRequest = { from: job.from, to: job.to, durable: job.durable };
    worker.postMessage(request);
  }

  #start(): Worker {
    const worker = new Worker(new URL("./copy-worker.ts", import.meta.url));
    worker.on("message", (answer: CopyAnswer) => {
      const job = this.#done(worker);
      worker.unref();
      this.#idle.push(worker);
      if ("copied" in answer) job?.resolve(answer.copied);
      else job?.reject(new CopyError(answer.failed.side, answer.failed.code, answer.failed.message));
      this.#next();
    });
    const died = (error: Error) => {
      const at = this.#idle.indexOf(worker);
      if (at >= 0) this.#idle.splice(at, 1);
      this.#done(worker)?.reject(error);
      this.#next();
    };
    worker.on("error", died);
    worker.on("exit", () => {
      died(new Error("the copying thread ended"));
    });
    return worker;
  }

  #done(worker: Worker): Job | undefined {
    const job = this.#running.get(worker);
    this.#running.delete(worker);
    return job;
  }
}
