import { type Holding } from "./holding.ts";
import { type Upstream } from "./upstream.ts";

/** A request that may go to its actor now, and counts as open until it is closed. */
export class Ticket {
  readonly holding: Holding;
  readonly upstream: Upstream;
  /** The holding's version at the start: a request that failed on it waits for a newer one. */
  readonly version: number;
  #open = true;

  constructor(holding: Holding, upstream: Upstream) {
    this.holding = holding;
    this.upstream = upstream;
    this.version = holding.version;
    holding.begin();
  }

  /** May be called more than once: a response's end and the client's leaving often come together. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.holding.end();
  }
}
