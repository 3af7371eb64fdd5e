/** Memory lent to one snapshot's dirty pages. Returned exactly once. */
export interface Loan {
  readonly bytes: number;
  /** Throws if it was returned before: a double return is a bug (R1). */
  return(): void;
}

/** Memory promised to one placed actor (its limit plus the runtime's overhead). Freed exactly once. */
export interface Booking {
  readonly bytes: number;
  /** Whether it took over the warm loan of `place`: then that one has ended, and its sandbox is the actor's. */
  readonly tookWarm: boolean;
  free(): void;
}

/**
 * Memory lent to a sandbox that waits for an actor. It refuses nobody: whatever a placement or a snapshot's loan lacks is
 * asked back.
 */
export interface WarmLoan {
  readonly bytes: number;
  /** Whether it was asked back: no actor may be put into that sandbox any more. */
  readonly askedBack: boolean;
  /** When the sandbox is gone. Throws if it was returned, or taken over by a booking, before. */
  return(): void;
}

/** A piece of an upload or a download that is in this process's memory: part of the reserve, counted to be seen. */
export interface Transfer {
  readonly bytes: number;
  end(): void;
}

export interface PlaceOptions {
  deadlineMs: number;
  bookedMs?: number;
  /**
   * The loan of the warm sandbox that the actor is to have: its bytes are part of the booking. If it has to be given back
   * meanwhile, for an actor that came before, the placement goes on without; `Booking.tookWarm` tells.
   */
  warm?: WarmLoan;
}

export interface LedgerState {
  limitBytes: number;
  reserveBytes: number;
  bookedBytes: number;
  lentBytes: number;
  /** Lent to warm sandboxes, those that are asked back among them. */
  warmBytes: number;
  /** Of the reserve, what uploads and downloads hold now. */
  transferBytes: number;
  /** What can still be promised; below 0 only while adopted actors alone exceed the limit. */
  unbookedBytes: number;
  /** The most that is lent at once; undefined: as much as is unbooked. */
  lendCapBytes: number | undefined;
  /** Placements in the line. */
  waiting: number;
  /** Of those in the line, first come first. */
  waitingBytes: readonly number[];
}

/** What happened, for metrics and logs. */
export type LedgerEvent =
  | { kind: "lent" | "loan-refused" | "loan-returned" | "warm-asked-back"; bytes: number }
  | { kind: "placed" | "no-room"; bytes: number; waitedMs: number };

/**
 * Promises on the pod's memory: booked + lent + warm + reserve ≤ limit, always (design.md §7 Room; R1–R5, R16, R26). The
 * states and what leads from one to another: docs/engine.md, "Memory".
 */
export interface Ledger {
  /**
   * Lends n bytes if they are unbooked and, by the pod's numbers, free; else undefined. All or nothing (R6), and at once:
   * warm loans are not asked back.
   */
  take(bytes: number, free: number): Loan | undefined;
  /**
   * As `take`, but where warm loans are all that stands in the way, they are asked back and waited for, at most
   * `withinMs`. First come, first lent (R16).
   * @param free what is free by the pod's numbers; asked anew after a wait.
   */
  borrow(bytes: number, free: () => Promise<number>, options: { withinMs: number }): Promise<Loan | undefined>;
  /**
   * Books room for an actor; waits up to `deadlineMs` while loans stand in its way (R2), first come, first served.
   * `bookedMs` (default `deadlineMs`) is its patience where bookings stand in its way that no loan's return would help:
   * another node may have room. Throws NO_ROOM, at once when the bytes can never fit.
   */
  place(bytes: number, options: PlaceOptions): Promise<Booking>;
  /** Books for an actor that already runs (adoption): never refused, may overbook, which `state` shows. */
  adopt(bytes: number): Booking;
  /** Dirty pages that an earlier atelet lent memory for: never refused, as they are there already. */
  inherit(bytes: number): Loan;
  /**
   * Lends to a warm sandbox what nobody has booked, borrowed or waits for; undefined if there is less.
   * @param giveUp called at most once, when somebody needs the memory: end the sandbox, then return the loan. It must not
   * throw, and may return the loan at once.
   */
  warm(bytes: number, giveUp: () => void): WarmLoan | undefined;
  /** Counts what a transfer holds. */
  transfer(bytes: number): Transfer;
  /** Whether less than `bytes` is unbooked or free: only then write-out starts (R3). Warm loans count as both. */
  tight(bytes: number, free: number): boolean;
  state(): LedgerState;
}
