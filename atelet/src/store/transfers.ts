import pLimit from "p-limit";

/** In each direction on one node; more at once only share the way to the store. */
const places = 2;
/** What one transfer holds in memory, whatever the image. */
const mostBytes = 64 << 20;

/** Where what transfers hold is counted: part of the node's reserve. */
export interface Reserve {
  transfer(bytes: number): { end(): void };
}

/** Memory images on their way to stores and from them: few at once, uploads never in the way of what a wake waits for. */
export class Transfers {
  readonly #reserve: Reserve | undefined;
  readonly #up = pLimit(places);
  readonly #down = pLimit(places);

  constructor(reserve?: Reserve) {
    this.#reserve = reserve;
  }

  /** @param sizeBytes of the image. */
  up<T>(sizeBytes: number, work: () => Promise<T>): Promise<T> {
    return this.#up(() => this.#counted(sizeBytes, work));
  }

  /** As up. */
  down<T>(sizeBytes: number, work: () => Promise<T>): Promise<T> {
    return this.#down(() => this.#counted(sizeBytes, work));
  }

  async #counted<T>(sizeBytes: number, work: () => Promise<T>): Promise<T> {
    const counted = this.#reserve?.transfer(Math.min(sizeBytes, mostBytes));
    try {
      return await work();
    } finally {
      counted?.end();
    }
  }
}
