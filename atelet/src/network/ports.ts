import { randomInt } from "node:crypto";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { portRestSeconds } from "./ruleset.ts";

/** Outer ports come from here; the pod's own listeners keep out of it or are named as reserved. */
const portRange = { first: 20_000, last: 60_000 } as const;

/** Chooses outer ports at random: neither in use, nor reserved, nor used within the last ten minutes. */
export class OuterPorts {
  readonly #used = new Set<number>();
  /** Port → when it may be used again, in ms of `now`. */
  readonly #resting = new Map<number, number>();
  readonly #reserved: ReadonlySet<number>;
  readonly #now: () => number;

  /** @param now a clock that never goes back, in ms */
  constructor(reserved: readonly number[], now: () => number = () => performance.now()) {
    this.#reserved = new Set(reserved);
    this.#now = now;
  }

  /** Throws NO_ROOM when all ports are used or resting. */
  take(): number {
    const size = portRange.last - portRange.first + 1;
    const start = randomInt(size);
    for (let i = 0; i < size; i += 1) {
      const port = portRange.first + ((start + i) % size);
      if (!this.#free(port)) continue;
      this.#used.add(port);
      return port;
    }
    throw new SubstrateError(
      "NO_ROOM",
      `all outer ports ${portRange.first}-${portRange.last} are in use or were within the last ${portRestSeconds} s`,
      { retryAfterMs: 10_000 },
    );
  }

  /** A port that the kernel already maps. */
  adopt(port: number): void {
    this.#used.add(port);
  }

  /** The port rests from now on. */
  giveBack(port: number): void {
    this.#used.delete(port);
    this.#resting.set(port, this.#now() + portRestSeconds * 1000);
  }

  #free(port: number): boolean {
    if (this.#used.has(port) || this.#reserved.has(port)) return false;
    const until = this.#resting.get(port);
    if (until === undefined) return true;
    if (this.#now() < until) return false;
    this.#resting.delete(port);
    return true;
  }
}
