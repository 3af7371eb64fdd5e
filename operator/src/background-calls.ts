import { asSubstrateError, type SubstrateError } from "@substrate/lib/errors.ts";

export interface FailedCall {
  kind: "failed";
  error: SubstrateError;
  /** In a row. */
  failures: number;
  /** Monotonic clock. */
  retryAtMs: number;
}

export type CallOutcome<T> = { kind: "running" } | { kind: "done"; value: T } | FailedCall;

const firstPauseMs = 500;
const lastPauseMs = 60_000;

/**
 * Calls that may take minutes, one at a time for each key, beside the reconciles that only look at how they stand. An
 * outcome stays known until it is forgotten.
 */
export class BackgroundCalls<T> {
  readonly #outcomes = new Map<string, CallOutcome<T>>();
  readonly #running = new Map<string, AbortController>();

  of(key: string): CallOutcome<T> | undefined {
    return this.#outcomes.get(key);
  }

  /** Starts the call unless one is running; `onEnd` is called when it has an outcome. */
  start(key: string, call: (signal: AbortSignal) => Promise<T>, onEnd: () => void): void {
    if (this.#running.has(key)) return;
    const before = this.#outcomes.get(key);
    const failures = before?.kind === "failed" ? before.failures : 0;
    const stop = new AbortController();
    this.#running.set(key, stop);
    this.#outcomes.set(key, { kind: "running" });
    void this.#finish(key, failures, call(stop.signal)).finally(onEnd);
  }

  /** Asks a running call to end; it is running until it has. */
  cancel(key: string): void {
    this.#running.get(key)?.abort();
  }

  forget(key: string): void {
    if (!this.#running.has(key)) this.#outcomes.delete(key);
  }

  async #finish(key: string, failedBefore: number, running: Promise<T>): Promise<void> {
    try {
      this.#outcomes.set(key, { kind: "done", value: await running });
    } catch (error) {
      const pauseMs = Math.min(lastPauseMs, firstPauseMs * 2 ** Math.min(failedBefore, 20));
      this.#outcomes.set(key, {
        kind: "failed",
        error: asSubstrateError(error),
        failures: failedBefore + 1,
        retryAtMs: performance.now() + pauseMs,
      });
    } finally {
      this.#running.delete(key);
    }
  }
}
