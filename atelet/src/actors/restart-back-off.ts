const FIRST_MS = 500;
const LAST_MS = 60_000;
/** A program that lived this long was not short-lived: its next failure starts the back-off anew. */
export const LONG_LIFE_MS = 60_000;

/** Slows down the restarts of an actor that fails again and again (design.md §4). */
export class RestartBackOff {
  lastFailure = "";
  readonly #ended: () => void;
  #failures = 0;
  /** Monotonic clock. */
  #untilMs = 0;

  /** @param ended called when a pause is over. */
  constructor(ended: () => void) {
    this.#ended = ended;
  }

  /** How long no restart is tried, in whole ms. */
  waitMs(): number {
    return Math.max(0, Math.ceil(this.#untilMs - performance.now()));
  }

  /** Begins anew. */
  over(): void {
    this.#failures = 0;
    this.#untilMs = 0;
  }

  /** @param startedAtMs when the life that ended began; undefined when it never did. */
  failed(message: string, startedAtMs: number | undefined): void {
    if (startedAtMs !== undefined && Date.now() - startedAtMs > LONG_LIFE_MS) this.#failures = 0;
    // The first failure after a good life is tried again at once: somebody may be waiting.
    const pauseMs = this.#failures === 0 ? 0 : Math.min(FIRST_MS * 2 ** this.#failures, LAST_MS);
    this.#failures += 1;
    this.#untilMs = performance.now() + pauseMs;
    this.lastFailure = message;
    if (pauseMs > 0) setTimeout(this.#ended, pauseMs + 1).unref();
  }
}
