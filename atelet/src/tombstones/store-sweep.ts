import { setTimeout as delay } from "node:timers/promises";
import { asSubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type ActorPrefix, type Removal } from "../store/snapshots.ts";

const FIRST_PAUSE_MS = 1000;
const LAST_PAUSE_MS = 60_000;
/** What others still use is looked at so often, and whenever anything else is removed. */
const USED_PAUSE_MS = 300_000;

export interface Doomed {
  prefix: ActorPrefix;
  /** Of messages: "actor default/counter". */
  title: string;
  /** Nothing on this node writes there any more; never rejects. */
  ended: Promise<void>;
}

export interface StoreSweepOptions {
  name: string;
  remove: (prefix: ActorPrefix) => Promise<Removal>;
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
  /** Of those that wait: what only waits for others that use it. */
  readonly #used = new Set<string>();

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
      const outcome = await this.#round();
      if (outcome === "progress") {
        this.#failures = 0;
        continue;
      }
      const failed = outcome === "failed";
      const pauseMs = failed ? Math.min(FIRST_PAUSE_MS * 2 ** this.#failures, LAST_PAUSE_MS) : USED_PAUSE_MS;
      this.#failures = failed ? this.#failures + 1 : 0;
      // Woken early by the next one to be removed: the store may be back.
      await delay(pauseMs, undefined, { signal: AbortSignal.any([signal, this.#wake.signal]), ref: false }).catch(
        () => undefined,
      );
    }
    this.#running = false;
  }

  /** Tries all that wait. `used`: nothing failed, and what is left is used by others. */
  async #round(): Promise<"progress" | "used" | "failed"> {
    const { name, remove, removed, log, signal } = this.#options;
    let progress = false;
    let failed = false;
    for (const doomed of [...this.#waiting.values()]) {
      if (signal.aborted) break;
      const uid = doomed.prefix.actorUid;
      try {
        await doomed.ended;
        if ((await remove(doomed.prefix)) === "waiting") {
          if (!this.#used.has(uid))
            log.info("removed from the store but for what others use", { store: name, what: doomed.title });
          this.#used.add(uid);
          continue;
        }
        await removed(doomed.prefix);
        this.#waiting.delete(uid);
        this.#used.delete(uid);
        progress = true;
        log.info("removed from the store", { store: name, what: doomed.title });
      } catch (thrown) {
        const error = asSubstrateError(thrown);
        if (!failed && this.#failures === 0) {
          const message = "deleted things wait for their store to be removed from it; it is tried until it answers";
          log.warn(message, { store: name, what: doomed.title, waiting: this.#waiting.size, error });
        }
        failed = true;
        if (error.code === "STORE_UNAVAILABLE") return "failed";
      }
    }
    if (failed) return "failed";
    return progress ? "progress" : "used";
  }
}
