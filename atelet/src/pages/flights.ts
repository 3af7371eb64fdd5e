import { type Job } from "./job.ts";

/** Keeps several pieces of a job under way at once, within a number and a sum of bytes. When one fails, all end. */
export class Flights {
  readonly #job: Job;
  readonly #maxCount: number;
  readonly #maxBytes: number;
  readonly #flying = new Set<Promise<void>>();
  #bytes = 0;
  #failed: { error: unknown } | undefined;

  constructor(job: Job, maxCount: number, maxBytes: number) {
    this.#job = job;
    this.#maxCount = maxCount;
    this.#maxBytes = maxBytes;
  }

  /** Resolves when there was room to start it. Throws what an earlier one threw, once all have ended. */
  async start(bytes: number, work: () => Promise<void>): Promise<void> {
    while (this.#flying.size > 0 && (this.#flying.size >= this.#maxCount || this.#bytes + bytes > this.#maxBytes)) {
      await Promise.race(this.#flying);
    }
    if (this.#failed) await this.end();
    this.#bytes += bytes;
    const flight = work()
      .catch((error: unknown) => {
        this.#failed ??= { error };
        this.#job.stop();
      })
      .finally(() => {
        this.#bytes -= bytes;
        this.#flying.delete(flight);
      });
    this.#flying.add(flight);
  }

  /** Waits for all. Throws what the first of them threw that failed. */
  async end(): Promise<void> {
    await Promise.all(this.#flying);
    if (this.#failed) throw this.#failed.error;
  }
}
