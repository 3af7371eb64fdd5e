/**
 * A pause before another try. It is shown as a time of the day, and ends by a clock that nobody sets: after the machine's
 * was put back by a day nothing rests a day longer.
 */
export class Rest {
  /** As it was when the pause began. */
  readonly untilUnixMs: number;
  readonly #endMs: number;
  readonly #monotonicMs: () => number;

  /** @param monotonicMs the clock that it ends by. */
  constructor(ms: number, monotonicMs: () => number = () => performance.now()) {
    this.untilUnixMs = Date.now() + ms;
    this.#endMs = monotonicMs() + ms;
    this.#monotonicMs = monotonicMs;
  }

  /** Whole ones; 0 when it is over. */
  get leftMs(): number {
    return Math.max(0, Math.ceil(this.#endMs - this.#monotonicMs()));
  }
}
