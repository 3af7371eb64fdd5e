import { type Logger } from "@substrate/lib/log.ts";

const retryMs = 1000;

/** Ready things made in the background, so that taking one costs nothing; an empty pool makes one while you wait. */
export class ReadyPool<T> {
  readonly #make: () => Promise<T>;
  readonly #size: number;
  readonly #log: Logger;
  readonly #ready: T[] = [];
  #filling: Promise<void> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(size: number, make: () => Promise<T>, log: Logger) {
    this.#size = size;
    this.#make = make;
    this.#log = log;
  }

  async take(): Promise<T> {
    const ready = this.#ready.shift();
    this.fill();
    return ready ?? (await this.#make());
  }

  /** Starts to fill in the background. */
  fill(): void {
    if (this.#closed || this.#filling !== undefined) return;
    clearTimeout(this.#retry);
    this.#filling = this.#fill().finally(() => {
      this.#filling = undefined;
    });
  }

  /** No more are made; what is ready is handed over. */
  async close(): Promise<T[]> {
    this.#closed = true;
    clearTimeout(this.#retry);
    await this.#filling;
    return this.#ready.splice(0);
  }

  async #fill(): Promise<void> {
    try {
      while (!this.#closed && this.#ready.length < this.#size) this.#ready.push(await this.#make());
    } catch (error) {
      this.#log.error("a ready network slot could not be made; trying again", { error, retryMs });
      this.#retry = setTimeout(() => {
        this.fill();
      }, retryMs).unref();
    }
  }
}
