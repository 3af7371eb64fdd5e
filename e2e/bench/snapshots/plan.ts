import { type Samples } from "../samples.ts";
import { type Ground } from "./ground.ts";

/** How much is measured. */
export interface Plan {
  ground: Ground;
  samples: Samples;
  /** Fewer sizes and rounds, so that all of it takes six minutes at most. */
  quick: boolean;
  say: (line: string) => void;
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
