import { RESULT_MARK, type GuestResult } from "./place.ts";

/** Runs checks one after the other and tells each on the console. Those after a failure of the same series are not run. */
export class Checks {
  readonly #series: string;
  #failed = false;

  constructor(series: string) {
    this.#series = series;
  }

  async check(name: string, run: () => Promise<void> | void): Promise<void> {
    if (this.#failed) {
      report({ name: `${this.#series}: ${name}`, error: "not run: an earlier check of this series failed" });
      return;
    }
    try {
      await run();
      report({ name: `${this.#series}: ${name}` });
    } catch (error) {
      this.#failed = true;
      report({
        name: `${this.#series}: ${name}`,
        error: error instanceof Error ? (error.stack ?? error.message) : String(error),
      });
    }
  }
}

function report(result: GuestResult): void {
  process.stdout.write(`\n${RESULT_MARK}${JSON.stringify(result)}\n`);
}
