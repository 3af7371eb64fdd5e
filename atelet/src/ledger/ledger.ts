import { setTimeout as delay } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import {
  type Booking,
  type Ledger,
  type LedgerEvent,
  type LedgerState,
  type Loan,
  type PlaceOptions,
  type Transfer,
  type WarmLoan,
} from "./contract.ts";

export interface MemoryLedgerOptions {
  limitBytes: number;
  reserveBytes: number;
  /** R5: the most that is lent to snapshots at once, where the pod has no limit that would bound it. */
  lendCapBytes?: number | undefined;
  observe?: (event: LedgerEvent) => void;
}

interface Waiter {
  bytes: number;
  warm: Warm | undefined;
  grant: (booking: Booking) => void;
}

interface Warm extends WarmLoan {
  askedBack: boolean;
  giveUp: () => void;
}

/**
 * The one place where the pod's memory is promised. It knows numbers only: no clock but the deadlines of those that
 * wait, no files, no control groups.
 *
 * Invariant after every call: booked + lent + warm + reserve ≤ limit, unless what was adopted or inherited alone exceeds
 * it (it is there already; nothing more is then promised). What is not promised is *unbooked*.
 *
 *     booking   place ─► in line ─► booked ─► freed           loan   take, borrow ─► lent ─► returned
 *                           └─────► NO_ROOM                                    └───► refused
 *               adopt ─────────────► booked                          inherit ───────► lent
 *
 *     warm      warm ─► lent ─► asked back ─► returned
 *                 │       └───► part of a booking (place with `warm`)
 *                 └───► refused
 *
 * One line of placements, first come, first served; a loan never takes what the first of them waits for (R2, R16). So
 * neither starves the other: loans end by themselves (R15), and a snapshot without one goes on, only slower (R6). Every
 * change that may give the first of the line its room ends in `#settle`, which alone grants: from the head while it fits;
 * and what the next one lacks is asked back of warm loans. So no wake-up is lost. A crash ends all that is here; the next
 * ledger begins with what it adopts and inherits.
 */
export class MemoryLedger implements Ledger {
  readonly #limitBytes: number;
  readonly #reserveBytes: number;
  readonly #lendCapBytes: number | undefined;
  readonly #observe: (event: LedgerEvent) => void;
  #bookedBytes = 0;
  #lentBytes = 0;
  #transferBytes = 0;
  /** In the order in which they were lent, which is the one in which they are asked back. */
  readonly #warm = new Set<Warm>();
  readonly #line: Waiter[] = [];
  /** R16: loans that wait for warm ones come one after the other. */
  #borrowing: Promise<unknown> = Promise.resolve();
  #borrowers = 0;
  #warmReturned = Promise.withResolvers<undefined>();

  constructor(options: MemoryLedgerOptions) {
    this.#limitBytes = options.limitBytes;
    this.#reserveBytes = options.reserveBytes;
    this.#lendCapBytes = options.lendCapBytes;
    this.#observe = options.observe ?? (() => undefined);
  }

  take(bytes: number, free: number): Loan | undefined {
    const loan = this.#take(bytes, free);
    if (loan === undefined) this.#observe({ kind: "loan-refused", bytes });
    return loan;
  }

  borrow(bytes: number, free: () => Promise<number>, { withinMs }: { withinMs: number }): Promise<Loan | undefined> {
    this.#borrowers += 1;
    const untilMs = performance.now() + withinMs;
    const turn = this.#borrowing
      .then(() => this.#borrow(bytes, free, untilMs))
      .finally(() => {
        this.#borrowers -= 1;
      });
    this.#borrowing = turn.catch(() => undefined);
    return turn;
  }

  place(bytes: number, options: PlaceOptions): Promise<Booking> {
    const { deadlineMs, bookedMs = deadlineMs } = options;
    assertBytes(bytes);
    const capacity = this.#limitBytes - this.#reserveBytes;
    if (bytes > capacity) {
      this.#observe({ kind: "no-room", bytes, waitedMs: 0 });
      return Promise.reject(
        new SubstrateError(
          "NO_ROOM",
          `needs ${mib(bytes)} of memory, but this node can give at most ${mib(capacity)} to all its actors together`,
        ),
      );
    }
    return new Promise((resolve, reject) => {
      const sinceMs = performance.now();
      const untilMs = sinceMs + deadlineMs;
      const waiter: Waiter = {
        bytes,
        warm: this.#own(options.warm, bytes),
        grant: (booking) => {
          clearTimeout(timer);
          this.#observe({ kind: "placed", bytes, waitedMs: performance.now() - sinceMs });
          resolve(booking);
        },
      };
      const look = (): void => {
        const leftMs = untilMs - performance.now();
        if (leftMs > 0 && !this.#bookingsForbid(waiter)) {
          timer = setTimeout(look, Math.min(bookedMs, leftMs));
          return;
        }
        this.#line.splice(this.#line.indexOf(waiter), 1);
        this.#observe({ kind: "no-room", bytes, waitedMs: performance.now() - sinceMs });
        reject(this.#noRoom(bytes, capacity));
        this.#settle();
      };
      let timer = setTimeout(look, Math.min(bookedMs, deadlineMs));
      this.#line.push(waiter);
      this.#settle();
    });
  }

  adopt(bytes: number): Booking {
    assertBytes(bytes);
    const booking = this.#book(bytes, undefined);
    this.#settle();
    return booking;
  }

  inherit(bytes: number): Loan {
    assertBytes(bytes);
    const loan = this.#lend(bytes);
    this.#settle();
    return loan;
  }

  warm(bytes: number, giveUp: () => void): WarmLoan | undefined {
    assertBytes(bytes);
    if (bytes > this.#unbooked() || this.#line.length > 0 || this.#borrowers > 0) return undefined;
    const loan: Warm = {
      bytes,
      askedBack: false,
      giveUp,
      return: () => {
        this.#end(loan);
        for (const waiter of this.#line) if (waiter.warm === loan) waiter.warm = undefined;
        this.#settle();
      },
    };
    this.#warm.add(loan);
    return loan;
  }

  transfer(bytes: number): Transfer {
    assertBytes(bytes);
    this.#transferBytes += bytes;
    return {
      bytes,
      end: once("a transfer was ended twice", () => {
        this.#transferBytes -= bytes;
      }),
    };
  }

  tight(bytes: number, free: number): boolean {
    const warm = this.#warmBytes();
    return this.#line.length > 0 || this.#unbooked() + warm < bytes || free + warm < bytes;
  }

  state(): LedgerState {
    return {
      limitBytes: this.#limitBytes,
      reserveBytes: this.#reserveBytes,
      bookedBytes: this.#bookedBytes,
      lentBytes: this.#lentBytes,
      warmBytes: this.#warmBytes(),
      transferBytes: this.#transferBytes,
      unbookedBytes: this.#unbooked(),
      lendCapBytes: this.#lendCapBytes,
      waiting: this.#line.length,
      waitingBytes: this.#line.map(({ bytes }) => bytes),
    };
  }

  #unbooked(): number {
    return this.#limitBytes - this.#reserveBytes - this.#bookedBytes - this.#lentBytes - this.#warmBytes();
  }

  #warmBytes(): number {
    return [...this.#warm].reduce((sum, { bytes }) => sum + bytes, 0);
  }

  #take(bytes: number, free: number): Loan | undefined {
    assertBytes(bytes);
    if (bytes > free || this.#lacksForLoan(bytes) > 0) return undefined;
    if (this.#lentBytes + bytes > (this.#lendCapBytes ?? Number.POSITIVE_INFINITY)) return undefined;
    this.#observe({ kind: "lent", bytes });
    return this.#lend(bytes);
  }

  /** How much more had to be unbooked for a loan that leaves the first of the line its room. */
  #lacksForLoan(bytes: number): number {
    const head = this.#line[0];
    const promised = head === undefined ? 0 : head.bytes - (head.warm?.bytes ?? 0);
    return bytes + promised - this.#unbooked();
  }

  async #borrow(bytes: number, free: () => Promise<number>, untilMs: number): Promise<Loan | undefined> {
    for (;;) {
      const now = await free();
      const loan = this.#take(bytes, now);
      const lacks = Math.max(this.#lacksForLoan(bytes), bytes - now);
      const leftMs = untilMs - performance.now();
      if (loan !== undefined || lacks <= 0 || leftMs <= 0 || lacks > this.#warmBytes()) {
        if (loan === undefined) this.#observe({ kind: "loan-refused", bytes });
        return loan;
      }
      this.#askBack(lacks);
      // one that was returned while it was asked back is seen by the next look
      if (!this.#isAskedBack()) continue;
      const over = new AbortController();
      const { promise } = this.#warmReturned;
      await Promise.race([promise, delay(leftMs, undefined, { signal: over.signal }).catch(() => undefined)]);
      over.abort();
    }
  }

  #lend(bytes: number): Loan {
    this.#lentBytes += bytes;
    return {
      bytes,
      return: once("a loan was returned twice", () => {
        this.#lentBytes -= bytes;
        this.#observe({ kind: "loan-returned", bytes });
        this.#settle();
      }),
    };
  }

  #book(bytes: number, warm: Warm | undefined): Booking {
    if (warm !== undefined) this.#end(warm);
    this.#bookedBytes += bytes;
    return {
      bytes,
      tookWarm: warm !== undefined,
      free: once("a booking was freed twice", () => {
        this.#bookedBytes -= bytes;
        this.#settle();
      }),
    };
  }

  /** A warm loan of this ledger that a placement of so many bytes can take over; undefined if it has ended. */
  #own(warm: WarmLoan | undefined, bytes: number): Warm | undefined {
    const own = [...this.#warm].find((candidate) => candidate === warm && !candidate.askedBack);
    if (own !== undefined && own.bytes > bytes) {
      throw new RangeError(`a warm sandbox of ${own.bytes} bytes for an actor of ${bytes}: this is a bug`);
    }
    if (own !== undefined && this.#line.some(({ warm: promised }) => promised === own)) {
      throw new Error("a warm sandbox was promised to two actors: this is a bug");
    }
    return own;
  }

  #end(warm: Warm): void {
    if (!this.#warm.delete(warm)) throw new Error("a warm loan was returned twice: this is a bug");
    this.#warmReturned.resolve(undefined);
    this.#warmReturned = Promise.withResolvers();
  }

  #isAskedBack(): boolean {
    return [...this.#warm].some(({ askedBack }) => askedBack);
  }

  /** Whether what is booked, and what those before it in the line will book, leaves it no room even without loans. */
  #bookingsForbid(waiter: Waiter): boolean {
    const before = this.#line.slice(0, this.#line.indexOf(waiter)).reduce((sum, { bytes }) => sum + bytes, 0);
    return this.#limitBytes - this.#reserveBytes - this.#bookedBytes - before < waiter.bytes;
  }

  /** Grants from the head of the line while it fits, and asks back what the next one lacks. */
  #settle(): void {
    for (let head = this.#line[0]; head !== undefined; head = this.#line[0]) {
      const lacks = head.bytes - (head.warm?.bytes ?? 0) - this.#unbooked();
      if (lacks > 0) {
        if (!this.#bookingsForbid(head)) this.#askBack(lacks, head.warm);
        return;
      }
      this.#line.shift();
      head.grant(this.#book(head.bytes, head.warm));
    }
    // what was adopted or inherited may have taken what warm sandboxes have
    this.#askBack(-this.#unbooked());
  }

  /** Asks back, oldest first, what lacks; what is asked back already counts. */
  #askBack(lacks: number, except?: Warm): void {
    const warm = [...this.#warm].filter((loan) => loan !== except);
    let left = warm.reduce((sum, { askedBack, bytes }) => (askedBack ? sum - bytes : sum), lacks);
    const asked: Warm[] = [];
    for (const loan of warm) {
      if (left <= 0) break;
      if (loan.askedBack) continue;
      loan.askedBack = true;
      for (const waiter of this.#line) if (waiter.warm === loan) waiter.warm = undefined;
      left -= loan.bytes;
      asked.push(loan);
    }
    // only now: it may return the loan at once, and so come back to here
    for (const loan of asked) {
      this.#observe({ kind: "warm-asked-back", bytes: loan.bytes });
      loan.giveUp();
    }
  }

  #noRoom(bytes: number, capacity: number): SubstrateError {
    const unbooked = Math.max(0, this.#unbooked());
    return new SubstrateError(
      "NO_ROOM",
      `needs ${mib(bytes)} of memory; ${mib(unbooked)} of ${mib(capacity)} are free` +
        ` (${mib(this.#bookedBytes)} booked by running actors, ${mib(this.#lentBytes)} lent to snapshots)`,
      { retryAfterMs: 1000 },
    );
  }
}

function once(message: string, action: () => void): () => void {
  let done = false;
  return () => {
    if (done) throw new Error(`${message}: this is a bug`);
    done = true;
    action();
  };
}

function assertBytes(bytes: number): void {
  if (!Number.isSafeInteger(bytes) || bytes < 0) throw new RangeError(`not a number of bytes: ${bytes}`);
}

function mib(bytes: number): string {
  return `${Math.round(bytes / 2 ** 20)} MiB`;
}
