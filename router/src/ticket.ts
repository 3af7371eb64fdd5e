import { type Holding } from "./holding.ts";
import { type OpenOnUpstream, type Upstream } from "./upstream.ts";

/** A request that may go to its actor now, and counts as open until it is closed or its upstream is discarded. */
export class Ticket implements OpenOnUpstream {
  readonly holding: Holding;
  readonly upstream: Upstream;
  /** The holding's version at the start: a request that failed on it waits for a newer one. */
  readonly version: number;
  /** Called at once when the upstream is discarded: for what its pool doesn't end. */
  onCut: (() => void) | undefined;
  #open = true;
  #isCut = false;

  constructor(holding: Holding, upstream: Upstream) {
    this.holding = holding;
    this.upstream = upstream;
    this.version = holding.version;
    holding.begin();
    upstream.enter(this);
  }

  /** Its upstream was discarded while it was open. */
  get isCut(): boolean {
    return this.#isCut;
  }

  cut(): void {
    if (!this.#open) return;
    this.#isCut = true;
    this.close();
    this.onCut?.();
  }

  /** May be called more than once: a response's end and the client's leaving often come together. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.upstream.leave(this);
    this.holding.end();
  }
}
