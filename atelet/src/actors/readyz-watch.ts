import { probeHttp } from "./probe.ts";
import { PROBE_MS } from "./readiness.ts";
import { type Program } from "./record.ts";

const EVERY_MS = 10_000;
/** One bad answer may be a moment's; so many in a row are a program that doesn't serve any more. */
const BAD_AFTER = 3;

export interface ReadyzWatchOptions {
  /** Called once, with the last answer, when it has turned bad. */
  bad: (message: string) => void;
  everyMs?: number;
}

/**
 * Asks the readyz of one running program again and again. Not through the router, so that it is no activity; never
 * during an operation, so that none waits for it and no connection of it is open at a checkpoint.
 */
export class ReadyzWatch {
  readonly #bad: (message: string) => void;
  readonly #everyMs: number;
  #failures = 0;
  #dueMs = 0;
  #asking: AbortController | undefined;

  constructor({ bad, everyMs = EVERY_MS }: ReadyzWatchOptions) {
    this.#bad = bad;
    this.#everyMs = everyMs;
  }

  /** The program is ready now, or goes on: the count begins anew. */
  begin(): void {
    this.end();
    this.#failures = 0;
    this.#dueMs = performance.now() + this.#everyMs;
  }

  /** Lets go of an answer that is being waited for. */
  end(): void {
    this.#asking?.abort();
    this.#asking = undefined;
  }

  /** Asks if it is time to; returns at once. To be called often while the program runs and nothing else is under way. */
  tick(host: string, readyz: Program["readyz"]): void {
    if (readyz === undefined || this.#asking !== undefined || performance.now() < this.#dueMs) return;
    const asking = new AbortController();
    this.#asking = asking;
    void probeHttp(host, readyz, { title: "readyz", timeoutMs: PROBE_MS, signal: asking.signal }).then((failure) => {
      if (this.#asking !== asking) return;
      this.#asking = undefined;
      this.#dueMs = performance.now() + this.#everyMs;
      this.#failures = failure === undefined ? 0 : this.#failures + 1;
      if (failure !== undefined && this.#failures >= BAD_AFTER) {
        this.#failures = 0;
        this.#bad(`its readyz turned bad: ${failure}, ${BAD_AFTER} times in a row`);
      }
    });
  }
}
