import { createHash } from "node:crypto";
import { type FileHandle, open, readFile, rm, stat } from "node:fs/promises";
import { Worker } from "node:worker_threads";
import { scriptUrl } from "@substrate/lib/script-url.ts";
import {
  type Copied,
  type CopyRequest,
  type FileAnswer,
  type FileRequest,
  type Moved,
  type ReadRequest,
} from "./copy.ts";
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
  request: FileRequest;
  resolve: (done: Copied | Moved) => void;
  reject: (error: Error) => void;
}

/** Uploads of large images must not keep a wake's download waiting; more threads than this only share one disk. */
const maxWorkers = 3;
/** Of them, so many may write what is to be durable. */
const maxWriters = 2;

/** Below this, a digest takes less than 4 ms of the event loop, and starting a thread would take longer. */
const smallBytes = 4 << 20;

/** Below this, reading takes less than handing it from thread to thread. */
const smallReadBytes = 256 << 10;

/** Copies, writes and reads files; large ones on worker threads that are started when needed. */
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
    const request: CopyRequest = { kind: "copy", from, to, durable: options.durable };
    return this.#ask(request) as Promise<Copied>;
  }

  /** Throws CopyError. */
  async digest(from: string): Promise<Copied> {
    const { size } = await about("from", stat(from));
    if (size > smallBytes) return (await this.#ask({ kind: "digest", from })) as Copied;
    return copiedOf(await about("from", readFile(from)));
  }

  /**
   * Writes the first bytes of a memory to a new file, durably. Throws CopyError. The target must not exist.
   * @returns the memory, which is transferred away meanwhile.
   */
  async write(memory: ArrayBuffer, lengthBytes: number, to: string): Promise<ArrayBuffer> {
    return ((await this.#ask({ kind: "write", to, memory, lengthBytes })) as Moved).memory;
  }

  /** Reads a part of a file to the beginning of a memory, as much as there is. Throws CopyError. See `write`. */
  async read(from: string, offset: number, lengthBytes: number, memory: ArrayBuffer): Promise<Moved> {
    const request: ReadRequest = { kind: "read", from, offset, lengthBytes, memory };
    if (lengthBytes <= smallReadBytes) return readSmall(request);
    return (await this.#ask(request)) as Moved;
  }

  /** Ends the threads; copies under way fail. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const job of this.#queue.splice(0)) job.reject(shuttingDown(job));
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
    return copiedOf(bytes);
  }

  #ask(request: FileRequest): Promise<Copied | Moved> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ request, resolve, reject });
      this.#next();
    });
  }

  #next(): void {
    if (this.#closed) {
      for (const job of this.#queue.splice(0)) job.reject(shuttingDown(job));
      return;
    }
    const at = this.#nextAt();
    if (at < 0) return;
    const worker = this.#idle.pop() ?? (this.#running.size < maxWorkers ? this.#start() : undefined);
    if (!worker) return;
    const [job] = this.#queue.splice(at, 1);
    if (!job) return;
    this.#running.set(worker, job);
    worker.ref();
    worker.postMessage(job.request, "memory" in job.request ? [job.request.memory] : []);
  }

  /** Reads go first: a wake waits for them. */
  #nextAt(): number {
    const read = this.#queue.findIndex((job) => !isDurable(job));
    if (read >= 0) return read;
    const writing = [...this.#running.values()].filter(isDurable).length;
    return this.#queue.length > 0 && writing < maxWriters ? 0 : -1;
  }

  #start(): Worker {
    const worker = new Worker(scriptUrl(new URL("./copy-worker.ts", import.meta.url), "copy-worker.mjs"));
    worker.on("message", (answer: FileAnswer) => {
      const job = this.#done(worker);
      this.#rest(worker);
      if ("done" in answer) job?.resolve(answer.done);
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

function copiedOf(bytes: Buffer): Copied {
  return { sizeBytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}

function isDurable({ request }: Job): boolean {
  return request.kind === "write" || (request.kind === "copy" && request.durable);
}

function shuttingDown({ request }: Job): Error {
  return new Error(`${request.kind} of ${"from" in request ? request.from : request.to}: shutting down`);
}

async function readSmall({ from, offset, lengthBytes, memory }: ReadRequest): Promise<Moved> {
  const file = await about("from", open(from, "r"));
  try {
    return { memory, bytes: await about("from", readAt(file, new Uint8Array(memory, 0, lengthBytes), offset)) };
  } finally {
    await file.close();
  }
}

/** @returns how much there was. */
async function readAt(file: FileHandle, into: Uint8Array, offset: number): Promise<number> {
  for (let done = 0; ;) {
    const { bytesRead } = await file.read(into, done, into.length - done, offset + done);
    done += bytesRead;
    if (bytesRead === 0 || done === into.length) return done;
  }
}

async function about<T>(side: "from" | "to", work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw new CopyError(side, errnoOf(error), error instanceof Error ? error.message : String(error));
  }
}
