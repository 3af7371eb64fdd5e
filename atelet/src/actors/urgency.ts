import { setTimeout as delay } from "node:timers/promises";

const LOOK_EVERY_MS = 50;

/** Tells work that can wait when nobody waits for the node: no wake, no load of memory, no suspend. */
export class Urgency {
  #underWay = 0;
  #idleSinceMs = -Infinity;

  async during<T>(work: () => Promise<T>): Promise<T> {
    this.#underWay += 1;
    try {
      return await work();
    } finally {
      this.#underWay -= 1;
      this.#idleSinceMs = performance.now();
    }
  }

  /** Resolves when nothing has been under way for a while; rejects when the signal aborts. */
  async quiet(forMs: number, signal: AbortSignal): Promise<void> {
    while (!this.isQuiet(forMs)) await delay(LOOK_EVERY_MS, undefined, { signal, ref: false });
  }

  /** Whether nothing has been under way for so long. */
  isQuiet(forMs: number): boolean {
    return this.#underWay === 0 && performance.now() - this.#idleSinceMs >= forMs;
  }
}
