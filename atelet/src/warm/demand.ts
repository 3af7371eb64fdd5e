/** A program that nobody has started for so long has no sandboxes waiting for it. */
export const FORGET_MS = 5 * 60_000;
/** Starts of one program within so short a time want a sandbox each. */
const TOGETHER_MS = 1000;

/**
 * How many sandboxes are to wait for each program, by what has been started lately: one for a program of which an actor
 * was started within the last minutes, and as many as were started at once when several were.
 */
export class Demand {
  readonly #startsMs = new Map<string, number[]>();

  started(program: string, nowMs: number): void {
    const recent = (this.#startsMs.get(program) ?? []).filter((startMs) => nowMs - startMs < FORGET_MS);
    // the newest program last
    this.#startsMs.delete(program);
    this.#startsMs.set(program, [...recent, nowMs]);
  }

  /** @param most of all programs together; those that were started last come first. */
  wanted(nowMs: number, most: number): Map<string, number> {
    const wanted = new Map<string, number>();
    let left = most;
    for (const [program, startsMs] of [...this.#startsMs].reverse()) {
      const count = Math.min(left, atOnce(startsMs.filter((startMs) => nowMs - startMs < FORGET_MS)));
      if (count > 0) wanted.set(program, count);
      left -= count;
    }
    return wanted;
  }

  /** Forgets what counts no more. @returns whether anything is left. */
  prune(nowMs: number): boolean {
    for (const [program, startsMs] of this.#startsMs) {
      if (startsMs.every((startMs) => nowMs - startMs >= FORGET_MS)) this.#startsMs.delete(program);
    }
    return this.#startsMs.size > 0;
  }
}

/** The most starts within TOGETHER_MS; `startsMs` ascends. */
function atOnce(startsMs: readonly number[]): number {
  let first = 0;
  let most = 0;
  for (const [index, startMs] of startsMs.entries()) {
    while (startMs - (startsMs[first] ?? startMs) > TOGETHER_MS) first += 1;
    most = Math.max(most, index - first + 1);
  }
  return most;
}
