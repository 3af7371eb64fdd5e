/** How many requests may wait at once in the whole router: each keeps a connection and its unread body. */
export class HoldBudget {
  readonly max: number;
  readonly maxPerActor: number;
  #held = 0;

  constructor(max: number, maxPerActor: number) {
    this.max = max;
    this.maxPerActor = maxPerActor;
  }

  get held(): number {
    return this.#held;
  }

  /** False if the router or this actor (which holds `ofActor` already) is at its bound. */
  take(ofActor: number): boolean {
    if (this.#held >= this.max || ofActor >= this.maxPerActor) return false;
    this.#held += 1;
    return true;
  }

  give(): void {
    if (this.#held === 0) throw new Error("held requests would fall below zero");
    this.#held -= 1;
  }
}
