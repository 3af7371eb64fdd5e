import { setTimeout as delay } from "node:timers/promises";
import { type Logger } from "@substrate/lib/log.ts";
import { type LocalBytes } from "./local-bytes.ts";

const AT_LEAST_EVERY_MS = 30_000;
/** Of the time, at most so much is spent on counting. */
const PART_OF_TIME = 0.05;

/** Keeps an account of what the node folder holds: counted again and again, so that it can never drift. */
export class LocalUsage {
  readonly #count: () => Promise<LocalBytes>;
  #last: LocalBytes | undefined;

  constructor(count: () => Promise<LocalBytes>) {
    this.#count = count;
  }

  /** As last counted; undefined before the first time. */
  get last(): LocalBytes | undefined {
    return this.#last;
  }

  /** Counts now. */
  async now(): Promise<LocalBytes> {
    this.#last = await this.#count();
    return this.#last;
  }

  async watch(log: Logger, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const startMs = performance.now();
      try {
        await this.now();
      } catch (error) {
        log.warn("what the node folder holds could not be counted", { error });
      }
      const restMs = Math.max(AT_LEAST_EVERY_MS, (performance.now() - startMs) / PART_OF_TIME);
      await delay(restMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }
}
