/** Times the phases of one operation, for its one line in the log and its histograms. */
export class Phases {
  readonly #startMs = performance.now();
  readonly #times: Record<string, number> = {};

  /** Runs one phase; its time counts also when it fails. A phase that runs twice adds up. */
  async run<T>(name: string, work: () => Promise<T>): Promise<T> {
    const startMs = performance.now();
    try {
      return await work();
    } finally {
      this.add(name, performance.now() - startMs);
    }
  }

  add(name: string, ms: number): void {
    this.#times[name] = (this.#times[name] ?? 0) + ms;
  }

  /** In the order of their first begin, in milliseconds to a tenth. */
  list(): { name: string; ms: number }[] {
    return Object.entries(this.#times).map(([name, ms]) => ({ name, ms: tenth(ms) }));
  }

  /** `{ <phase>Ms, …, totalMs }`, in milliseconds to a tenth. */
  fields(): Record<string, number> {
    const entries = this.list().map(({ name, ms }): [string, number] => [`${name}Ms`, ms]);
    return { ...Object.fromEntries(entries), totalMs: tenth(performance.now() - this.#startMs) };
  }
}

function tenth(ms: number): number {
  return Math.round(ms * 10) / 10;
}
