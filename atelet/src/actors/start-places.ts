import { setTimeout as delay } from "node:timers/promises";
import pLimit from "p-limit";

/** A program that isn't ready by then waits for something, and keeps nobody from the cores. */
const HOLD_MS = 1000;

/**
 * Starts and restores take their turn, first come, first served: more at once than there are cores only make each other
 * slower, and the first of a burst as late as the last.
 */
export class StartPlaces {
  readonly #limit: ReturnType<typeof pLimit>;
  readonly #holdMs: number;

  constructor(atOnce: number, holdMs = HOLD_MS) {
    this.#limit = pLimit(atOnce);
    this.#holdMs = holdMs;
  }

  /** @param begins called when its turn has come. */
  run<T>(begins: () => void, work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      void this.#limit(async () => {
        begins();
        const ended = work().then(resolve, reject);
        const over = new AbortController();
        const late = delay(this.#holdMs, undefined, { signal: over.signal, ref: false }).catch(() => undefined);
        await Promise.race([ended, late]);
        over.abort();
      });
    });
  }
}
