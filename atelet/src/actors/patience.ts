import { setTimeout as delay } from "node:timers/promises";
import { type Urgency } from "./urgency.ts";

/** So long nothing was under way on the node before work that can wait goes on. */
const QUIET_MS = 100;
const LOOK_EVERY_MS = 25;

/** Of one piece of work that lets wakes and suspends go first: how long it has still got to do so. */
export class Patience {
  readonly #urgency: Pick<Urgency, "isQuiet">;
  #leftMs: number;

  /** @param mostMs that it waits in all: on a node that is never quiet it must come to its end, too. */
  constructor(urgency: Pick<Urgency, "isQuiet">, mostMs: number) {
    this.#urgency = urgency;
    this.#leftMs = mostMs;
  }

  /** Somebody waits for the work itself. */
  end(): void {
    this.#leftMs = 0;
  }

  /** Resolves when the work may go on. */
  async calm(): Promise<void> {
    const startMs = performance.now();
    while (performance.now() - startMs < this.#leftMs && !this.#urgency.isQuiet(QUIET_MS)) {
      await delay(LOOK_EVERY_MS, undefined, { ref: false });
    }
    this.#leftMs = Math.max(0, this.#leftMs - (performance.now() - startMs));
  }
}
