import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Booking, type Ledger, type LedgerState, type Loan } from "./contract.ts";

interface PlaceOptions {
  deadlineMs: number;
  bookedMs?: number;
}

interface Waiter {
  bytes: number;
  grant: (booking: Booking) => void;
}

/**
 * The one place where the pod's memory is promised. Invariant after every call: booked + lent + reserve ≤ limit, unless
 * adopted actors alone exceed it (they run already; nothing more is then promised).
 *
 * Placements wait in line, first come, first served; a loan never overtakes the first of them (R2, R16), so neither can
 * starve the other: loans end by themselves (R15), and a snapshot without a loan goes on, only slower (R6).
 */
export class MemoryLedger implements Ledger {
  readonly #limitBytes: number;
  readonly #reserveBytes: number;
  #bookedBytes = 0;
  #lentBytes = 0;
  readonly #waiters: Waiter[] = [];

  constructor(options: { limitBytes: number; reserveBytes: number }) {
    this.#limitBytes = options.limitBytes;
    this.#reserveBytes = options.reserveBytes;
  }

  take(bytes: number, free: number): Loan | undefined {
    assertBytes(bytes);
    const promised = this.#waiters[0]?.bytes ?? 0;
    if (bytes > this.#unbooked() - promised || bytes > free) return undefined;
    this.#lentBytes += bytes;
    return {
      bytes,
      return: once("a loan was returned twice", () => {
        this.#lentBytes -= bytes;
        this.#settle();
      }),
    };
  }

  place(bytes: number, { deadlineMs, bookedMs = deadlineMs }: PlaceOptions): Promise<Booking> {
    assertBytes(bytes);
    const capacity = this.#limitBytes - this.#reserveBytes;
    if (bytes > capacity) {
      return Promise.reject(
        new SubstrateError(
          "NO_ROOM",
          `needs ${mib(bytes)} of memory, but this node can give at most ${mib(capacity)} to all its actors together`,
        ),
      );
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        bytes,
        grant: (booking) => {
          clearTimeout(timer);
          resolve(booking);
        },
      };
      const untilMs = performance.now() + deadlineMs;
      const look = (): void => {
        const leftMs = untilMs - performance.now();
        if (leftMs > 0 && !this.#bookingsForbid(waiter)) {
          timer = setTimeout(look, Math.min(bookedMs, leftMs));
          return;
        }
        this.#waiters.splice(this.#waiters.indexOf(waiter), 1);
        reject(
          new SubstrateError(
            "NO_ROOM",
            `needs ${mib(bytes)} of memory; ${mib(Math.max(0, this.#unbooked()))} of ${mib(capacity)} are free` +
              ` (${mib(this.#bookedBytes)} booked by running actors, ${mib(this.#lentBytes)} lent to snapshots)`,
            { retryAfterMs: 1000 },
          ),
        );
        this.#settle();
      };
      let timer = setTimeout(look, Math.min(bookedMs, deadlineMs));
      this.#waiters.push(waiter);
      this.#settle();
    });
  }

  /** Whether what is booked, and what those before it in the line will book, leaves it no room even without loans. */
  #bookingsForbid(waiter: Waiter): boolean {
    const before = this.#waiters.slice(0, this.#waiters.indexOf(waiter)).reduce((sum, { bytes }) => sum + bytes, 0);
    return this.#limitBytes - this.#reserveBytes - this.#bookedBytes - before < waiter.bytes;
  }

  adopt(bytes: number): Booking {
    assertBytes(bytes);
    return this.#book(bytes);
  }

  tight(bytes: number, free: number): boolean {
    return this.#unbooked() < bytes || free < bytes || this.#waiters.length > 0;
  }

  state(): LedgerState {
    return {
      limitBytes: this.#limitBytes,
      reserveBytes: this.#reserveBytes,
      bookedBytes: this.#bookedBytes,
      lentBytes: this.#lentBytes,
      waiting: this.#waiters.length,
    };
  }

  #unbooked(): number {
    return this.#limitBytes - this.#reserveBytes - this.#bookedBytes - this.#lentBytes;
  }

  #book(bytes: number): Booking {
    this.#bookedBytes += bytes;
    return {
      bytes,
      free: once("a booking was freed twice", () => {
        this.#bookedBytes -= bytes;
        this.#settle();
      }),
    };
  }

  /** Grants from the head of the line while it fits. */
  #settle(): void {
    for (let head = this.#waiters[0]; head !== undefined && head.bytes <= this.#unbooked(); head = this.#waiters[0]) {
      this.#waiters.shift();
      head.grant(this.#book(head.bytes));
    }
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
