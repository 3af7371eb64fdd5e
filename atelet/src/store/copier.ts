import { createHash } from "node:crypto";
import { open, readFile, rm, stat } from "node:fs/promises";
import { Worker } from "node:worker_threads";
import { scriptUrl } from "@substrate/lib/script-url.ts";
import { type Copied, type CopyAnswer, type CopyRequest } from "./copy.ts";
import { Flock } from "./flock.ts";
import { errnoOf } from "./folder.ts";

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

/** Below this, a digest takes less than 4 ms of the event loop, and starting a thread would take longer. */
const smallBytes = 4 << 20;

/** Copies files; large ones on worker threads that are started when needed. */
export class Copier {
  readonly #flock = new Flock();
  readonly #idle: Worker[] = [];
  readonly #running = new Map<Worker, Job>();
  readonly #queue: Job[] = [];
  #closed = false;

  /** Throws CopyError. The target must not exist. See CopyRequest for `durable`. */
  async copy(from: string, to: string, options: { durable: boolean }): Promise<Copied> {
    const { size } = await about("from", stat(from));
    if (size <= smallBytes) return this.#copySmall(from, to, options.durable);
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

  async #copySmall(from: string, to: string, durable: boolean): Promise<Copied> {
    const bytes = await about("from", readFile(from));
    const file = await about("to", open(to, "wx", 0o600));
    try {
      if (durable) this.#flock.try(file.fd);
      await about("to", file.writeFile(bytes));
      if (durable) await about("to", file.sync());
    } catch (error) {
      await rm(to, { force: true });
      throw error;
    } finally {
      await file.close();
    }
    return { sizeBytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
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
    const worker = new Worker(scriptUrl(new URL("./copy-worker.ts", import.meta.url), "copy-worker.mjs"));
    worker.on("message", (answer: CopyAnswer) => {
      const job = this.#done(worker);
      this.#rest(worker);
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

  /** One idle thread is kept: starting one takes about 50 ms, keeping one about 15 MB. */
  #rest(worker: Worker): void {
    worker.unref();
    if (this.#idle.length === 0 || this.#queue.length > 0) this.#idle.push(worker);
    else void worker.terminate();
  }

  #done(worker: Worker): Job | undefined {
    const job = this.#running.get(worker);
    this.#running.delete(worker);
    return job;
  }
}

async function about<T>(side: "from" | "to", work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw new CopyError(side, errnoOf(error), error instanceof Error ? error.message : String(error));
  }
}
