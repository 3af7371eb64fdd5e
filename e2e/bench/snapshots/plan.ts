import { type Samples } from "../samples.ts";
import { type Ground } from "./ground.ts";

/** How much is measured. */
export interface Plan {
  ground: Ground;
  samples: Samples;
  /** Fewer sizes and rounds, so that all of it takes six minutes at most; undefined: as many as the results need. */
  quick: Schedule | undefined;
  say: (line: string) => void;
}

/** The parts of a quick run, with the seconds that each takes when nothing else runs. */
const parts = {
  zero: 30,
  "200 MiB": 15,
  "1000 MiB": 30,
  delta: 30,
  link: 40,
  "round trips": 65,
  fresh: 15,
  cycles: 55,
  "burn-in": 45,
} as const;

/** Divides the time of a quick run: what one part takes more, those after it have less, each in its proportion. */
export class Schedule {
  readonly #endMs: number;
  readonly #left = new Map<string, number>(Object.entries(parts));

  constructor(totalMs: number) {
    this.#endMs = performance.now() + totalMs;
  }

  /** Milliseconds for this part, which begins now. */
  budgetMs(part: keyof typeof parts): number {
    const all = [...this.#left.values()].reduce((sum, seconds) => sum + seconds, 0);
    const own = this.#left.get(part) ?? 0;
    this.#left.delete(part);
    return all === 0 ? 0 : Math.max(0, ((this.#endMs - performance.now()) * own) / all);
  }
}

/** One row of a table: what was measured, milliseconds unless the name says otherwise. */
export type Row = Record<string, number | string>;

/** Repeats until there were enough rounds, or their time is over; once at least. */
export async function rounds(
  { count, budgetMs }: { count: number; budgetMs: number },
  round: (number: number) => Promise<void>,
): Promise<void> {
  const endMs = performance.now() + budgetMs;
  for (let number = 0; number < count; number += 1) {
    if (number > 0 && performance.now() > endMs) return;
    await round(number);
  }
}
