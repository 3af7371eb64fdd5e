import { median, percentile } from "./statistics.ts";

/** Of values of one name. */
interface Summary {
  count: number;
  min: number;
  p10: number;
  median: number;
  p90: number;
  max: number;
}

/** What was measured, every value of it, by name. */
export class Samples {
  readonly #values = new Map<string, number[]>();

  add(name: string, value: number): void {
    const values = this.#values.get(name);
    if (values === undefined) this.#values.set(name, [value]);
    else values.push(value);
  }

  of(name: string): readonly number[] {
    return this.#values.get(name) ?? [];
  }

  /** @throws if there is no such value: a ratio must not be made of nothing. */
  median(name: string): number {
    const values = this.of(name);
    if (values.length === 0) throw new Error(`nothing was measured as "${name}"`);
    return median(values);
  }

  /** `median (smallest–largest)`, rounded. */
  spread(name: string): string {
    const [low, high] = [percentile(this.of(name), 0), percentile(this.of(name), 1)];
    return `${Math.round(this.median(name))} (${Math.round(low)}–${Math.round(high)})`;
  }

  /** `p50/p90/p99`, rounded. */
  percentiles(name: string): string {
    return [0.5, 0.9, 0.99].map((share) => Math.round(percentile(this.of(name), share))).join("/");
  }

  summaries(): Record<string, Summary> {
    return Object.fromEntries(
      [...this.#values].map(([name, values]) => {
        const [min = NaN, p10 = NaN, p90 = NaN, max = NaN] = [0, 0.1, 0.9, 1].map((share) =>
          round(percentile(values, share)),
        );
        return [name, { count: values.length, min, p10, median: round(median(values)), p90, max }];
      }),
    );
  }

  toJSON(): Record<string, number[]> {
    return Object.fromEntries([...this.#values].map(([name, values]) => [name, values.map((value) => round(value))]));
  }
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}
