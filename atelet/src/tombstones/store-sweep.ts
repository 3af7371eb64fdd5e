import { setTimeout as delay } from "node:timers/promises";
import { asSubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type ActorPrefix } from "../store/snapshots.ts";

const FIRST_PAUSE_MS = 1000;
const LAST_PAUSE_MS = 60_000;

export interface Doomed {
  prefix: ActorPrefix;
  /** Of messages: "actor default/counter". */
  title: string;
  /** Nothing on this node writes there any more; never rejects. */
  ended: Promise<void>;
}

export interface StoreSweepOptions {
  name: string;
  remove: (prefix: ActorPrefix) => Promise<void>;
  removed: (prefix: ActorPrefix) => Promise<void>;
  log: Logger;
  signal: AbortSignal;
}

/** Removes prefixes from one store: at once, and while it does not answer at growing pauses, for ever. */
export class StoreSweep {
  readonly #options: StoreSweepOptions;
  readonly #waiting = new Map<string, Doomed>();
  #running = false;
  #wake = new AbortController();
  #failures = 0;

  constructor(options: StoreSweepOptions) {
    this.#options = options;
  }

  add(doomed: Doomed): void {
    this.#waiting.set(doomed.prefix.actorUid, doomed);
    if (!this.#running) void this.#run();
    else this.#wake.abort();
  }

  async #run(): Promise<void> {
    const { signal } = this.#options;
    this.#running = true;
    while (this.#waiting.size > 0 && !signal.aborted) {
      this.#wake = new AbortController();
      if (await this.#round()) {
        this.#failures = 0;
        continue;
      }
      const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** this.#failures, LAST_PAUSE_MS);
      this.#failures += 1;
      // Woken early by the next one to be removed: the store may be back.
      await delay(pauseMs, undefined, { signal: AbortSignal.any([signal, this.#wake.signal]), ref: false }).catch(
        () => undefined,
      );
    }
    this.#running = false;
  }

  /** Tries all that wait. @returns whether nothing failed. */
  async #round(): Promise<boolean> {
    const { name, remove, removed, log, signal } = this.#options;
    let whole = true;
    for (const doomed of [...this.#waiting.values()]) {
      if (signal.aborted) return whole;
      try {
        await doomed.ended;
        await remove(doomed.prefix);
        await removed(doomed.prefix);
        this.#waiting.delete(doomed.prefix.actorUid);
        log.info("removed from the store", { store: name, what: doomed.title });
      } catch (thrown) {
        const error = asSubstrateError(thrown);
        if (whole && this.#failures === 0) {
          const message = "deleted things wait for their store to be removed from it; it is tried until it answers";
          log.warn(message, { store: name, what: doomed.title, waiting: this.#waiting.size, error });
        }
        whole = false;
        if (error.code === "STORE_UNAVAILABLE") return false;
      }
    }
    return whole;
  }
}
