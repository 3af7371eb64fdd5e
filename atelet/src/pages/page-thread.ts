import { SubstrateError } from "@substrate/lib/errors.ts";
import { scriptUrl } from "@substrate/lib/script-url.ts";
import { Worker } from "node:worker_threads";
import {
  type Answers,
  type Failure,
  type FromThread,
  type QuestionName,
  type Questions,
  type ToThread,
  type WorkName,
  type WorkResults,
  type Works,
} from "./protocol.ts";

/** How the caller answers what a thread asks. */
export type Answering = { [N in QuestionName]?: (asked: Questions[N]) => Promise<Answers[N]> };

interface Pending {
  answering: Answering;
  given: Int32Array;
  /** The first error of a callback, or what the signal was aborted with. */
  cause: { error: unknown } | undefined;
  resolve: (result: WorkResults[WorkName]) => void;
  reject: (error: unknown) => void;
}

/** One thread of the engine: started by the first work, and again if it died. It keeps no work waiting. */
export class PageThread {
  readonly #pending = new Map<number, Pending>();
  #worker: Worker | undefined;
  #nextId = 1;
  #closed = false;

  /** Throws as Pages says. */
  async work<N extends WorkName>(
    name: N,
    work: Works[N],
    answering: Answering,
    signal: AbortSignal | undefined,
  ): Promise<WorkResults[N]> {
    signal?.throwIfAborted();
    if (this.#closed) throw shuttingDown();
    const id = this.#nextId++;
    const worker = (this.#worker ??= this.#start());
    const given = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    const giveUp = (): void => {
      this.#giveUp(id, signal?.reason);
    };
    signal?.addEventListener("abort", giveUp, { once: true });
    try {
      const result = await new Promise<WorkResults[WorkName]>((resolve, reject) => {
        if (this.#pending.size === 0) worker.ref();
        this.#pending.set(id, { answering, given, cause: undefined, resolve, reject });
        worker.postMessage({ id, name, work, given } satisfies ToThread);
      });
      // the thread does what it is asked by name
      return result as WorkResults[N];
    } finally {
      signal?.removeEventListener("abort", giveUp);
    }
  }

  /** What is under way fails. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#worker?.terminate();
  }

  #start(): Worker {
    const worker = new Worker(scriptUrl(new URL("./pages-worker.ts", import.meta.url), "pages-worker.mjs"));
    worker.on("message", (message: FromThread) => {
      const pending = this.#pending.get(message.id);
      if (!pending) return;
      if ("question" in message) {
        void this.#answer(worker, pending, message);
        return;
      }
      this.#pending.delete(message.id);
      if (this.#pending.size === 0) worker.unref();
      if (pending.cause) pending.reject(pending.cause.error);
      else if ("failed" in message) pending.reject(carried(message.failed));
      else pending.resolve(message.result);
    });
    worker.on("error", (error) => {
      this.#forget(worker, error);
    });
    worker.on("exit", () => {
      this.#forget(worker, undefined);
    });
    return worker;
  }

  async #answer(
    worker: Worker,
    pending: Pending,
    { id, question, name, asked }: Extract<FromThread, { question: number }>,
  ): Promise<void> {
    try {
      const answering = pending.answering[name];
      if (!answering) throw new Error(`nobody answers "${name}" for this work: this is a bug`);
      // the question has the type of its name
      const answer = await (answering as (asked: unknown) => Promise<Answers[QuestionName]>)(asked);
      const transfer = answer instanceof ArrayBuffer ? [answer] : [];
      if (!this.#pending.has(id)) {
        // freed at once
        for (const buffer of transfer) buffer.transfer(0);
        return;
      }
      worker.postMessage({ id, question, answer } satisfies ToThread, transfer);
    } catch (error) {
      this.#giveUp(id, error);
    }
  }

  /** The work ends as soon as its thread has cleaned up. */
  #giveUp(id: number, error: unknown): void {
    const pending = this.#pending.get(id);
    if (!pending) return;
    pending.cause ??= { error };
    Atomics.store(pending.given, 0, 1);
    this.#worker?.postMessage({ id, abandon: true } satisfies ToThread);
  }

  #forget(worker: Worker, cause: unknown): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject } of pending) {
      reject(this.#closed ? shuttingDown() : new SubstrateError("INTERNAL", "the thread of pages ended", { cause }));
    }
  }
}

function shuttingDown(): SubstrateError {
  return new SubstrateError("SHUTTING_DOWN", "the node is shutting down: its pages are no longer worked on");
}

/** The thread's error as its caller sees it; its stack, and the operating system's name of it, are the cause's. */
function carried({ code, message, stack, errno }: Failure): SubstrateError {
  const cause: NodeJS.ErrnoException = new Error(message);
  if (stack !== undefined) cause.stack = stack;
  if (errno !== undefined) cause.code = errno;
  return new SubstrateError(code, message, { cause });
}
