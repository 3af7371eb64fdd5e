import { loadavg } from "node:os";
import { type Samples } from "../samples.ts";
import { type Ground } from "./ground.ts";

/** How much is measured. */
export interface Plan {
  ground: Ground;
  samples: Samples;
  parts: Parts;
  /** Fewer sizes and rounds, so that all of it takes six minutes at most. */
  quick: boolean;
  signal: AbortSignal;
  say: (line: string) => void;
}

interface Budget {
  quickSeconds: number;
  seconds: number;
}

/**
 * What each part is given. Those of a quick run are shares, of what is left when it begins; the burn-in's own length
 * is told by its caller.
 */
const budgets = {
  "held memory": { quickSeconds: 70, seconds: 900 },
  "5 % changed": { quickSeconds: 25, seconds: 240 },
  "through a link": { quickSeconds: 30, seconds: 400 },
  "round trips": { quickSeconds: 35, seconds: 600 },
  "stored first": { quickSeconds: 25, seconds: 480 },
  "Python server": { quickSeconds: 15, seconds: 180 },
  requests: { quickSeconds: 4, seconds: 30 },
  "tight memory": { quickSeconds: 16, seconds: 240 },
  "fifteen actors": { quickSeconds: 40, seconds: 420 },
  "burn-in": { quickSeconds: 36, seconds: 0 },
} as const satisfies Record<string, Budget>;

export type PartName = keyof typeof budgets;

/** What a part took. */
export interface PartRow {
  part: string;
  seconds: number;
  budgetSeconds: number;
  /** Before it. */
  loadAverage: number;
}

/** Divides the time: of a quick run, what one part takes more, those after it have less, each in its proportion. */
export class Parts {
  readonly rows: PartRow[] = [];
  readonly #quickEndMs: number | undefined;
  readonly #left = new Map<string, Budget>(Object.entries(budgets));
  readonly #signal: AbortSignal;
  readonly #say: (line: string) => void;

  /** @param own.quickMs from now until all parts are to be done; undefined: as long as the results need. */
  constructor(own: { quickMs: number | undefined; signal: AbortSignal; say: (line: string) => void }) {
    this.#quickEndMs = own.quickMs === undefined ? undefined : performance.now() + own.quickMs;
    this.#signal = own.signal;
    this.#say = own.say;
  }

  /** @param work gets the time of `performance.now()` at which it should be done. */
  async run<T>(name: PartName, work: (endMs: number) => Promise<T>): Promise<T> {
    this.#signal.throwIfAborted();
    const startMs = performance.now();
    const [loadAverage = NaN] = loadavg();
    const budgetMs = this.#budgetMs(name, startMs);
    const result = await work(startMs + budgetMs);
    const row = {
      part: name,
      seconds: seconds(performance.now() - startMs),
      budgetSeconds: seconds(budgetMs),
      loadAverage,
    };
    this.rows.push(row);
    this.#say(
      `-- ${name}: ${row.seconds} s, ${row.budgetSeconds} s were given; load average before it ${loadAverage.toFixed(1)}`,
    );
    return result;
  }

  #budgetMs(name: PartName, nowMs: number): number {
    const own = budgets[name];
    const all = [...this.#left.values()].reduce((sum, { quickSeconds }) => sum + quickSeconds, 0);
    this.#left.delete(name);
    if (this.#quickEndMs === undefined) return own.seconds * 1000;
    return Math.max(0, ((this.#quickEndMs - nowMs) * own.quickSeconds) / all);
  }
}

function seconds(ms: number): number {
  return Math.round(ms / 100) / 10;
}

/** One row of a table: what was measured, milliseconds unless the name says otherwise. */
export type Row = Record<string, number | string>;

/** Repeats until there were enough rounds, or the next one would end after their time; once at least. */
export async function rounds(
  { count, endMs, signal }: { count: number; endMs: number; signal: AbortSignal },
  round: (number: number) => Promise<void>,
): Promise<void> {
  let longestMs = 0;
  for (let number = 0; number < count; number += 1) {
    signal.throwIfAborted();
    const startMs = performance.now();
    if (number > 0 && startMs + longestMs > endMs) return;
    await round(number);
    longestMs = Math.max(longestMs, performance.now() - startMs);
  }
}
