import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { Flock } from "./flock.ts";

/** A holder keeps it for a read and a rename: waiting this long means a hanging disk. */
const waitMs = 10_000;

/** An exclusive lock on a path, across processes and within this one. Waiting never blocks the event loop. */
export class PathLock {
  readonly #path: string;
  readonly #flock = new Flock();
  #last: Promise<unknown> = Promise.resolve();

  constructor(path: string) {
    this.#path = path;
  }

  /** Runs `action` alone. Throws STORE_UNAVAILABLE if the lock can't be had within 10 s. */
  hold<T>(action: () => Promise<T>): Promise<T> {
    const result = this.#last.then(() => this.#alone(action));
    this.#last = result.catch(() => undefined);
    return result;
  }

  async #alone<T>(action: () => Promise<T>): Promise<T> {
    const file = await open(this.#path, constants.O_RDWR | constants.O_CREAT, 0o600);
    try {
      const deadline = performance.now() + waitMs;
      for (let pauseMs = 1; !this.#flock.try(file.fd); pauseMs = Math.min(pauseMs * 2, 50)) {
        if (performance.now() > deadline) {
          const message = `${this.#path} has been locked by another process for ${waitMs / 1000} s; is its disk hanging?`;
          throw new SubstrateError("STORE_UNAVAILABLE", message);
        }
        await delay(pauseMs * (0.5 + Math.random()));
      }
      return await action();
    } finally {
      await file.close();
    }
  }
}
