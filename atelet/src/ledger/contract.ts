/** Memory lent to one snapshot's dirty pages. Returned exactly once. */
export interface Loan {
  readonly bytes: number;
  /** Throws if it was returned before: a double return is a bug (R1). */
  return(): void;
}

/** Memory promised to one placed actor (its limit plus the runtime's overhead). Freed exactly once. */
export interface Booking {
  readonly bytes: number;
  free(): void;
}

export interface LedgerState {
  limitBytes: number;
  reserveBytes: number;
  bookedBytes: number;
  lentBytes: number;
  waiting: number;
}

/** Promises on the pod's memory: booked + lent + reserve ≤ limit, always (design.md §7 Room; R1–R5, R16, R26). */
export interface Ledger {
  /** Lends n bytes if they are unbooked and, by the pod's numbers, free; else undefined. All or nothing (R6). */
  take(bytes: number, free: number): Loan | undefined;
  /**
   * Books room for an actor; waits up to `deadlineMs` while loans stand in its way (R2), first come, first served.
   * `bookedMs` (default `deadlineMs`) is its patience where bookings stand in its way that no loan's return would help:
   * another node may have room. Throws NO_ROOM, at once when the bytes can never fit.
   */
  place(bytes: number, options: { deadlineMs: number; bookedMs?: number }): Promise<Booking>;
  /** Books for an actor that already runs (adoption): never refused, may overbook, which `state` shows. */
  adopt(bytes: number): Booking;
  /** Whether less than `bytes` is unbooked or free: only then write-out starts (R3). */
  tight(bytes: number, free: number): boolean;
  state(): LedgerState;
}
