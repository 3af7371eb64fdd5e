import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { type LeaseHolder } from "@substrate/lib/kube/lease.ts";
import { type Logger } from "@substrate/lib/log.ts";

const retryMs = 1_000;
const callTimeoutMs = 5_000;

export interface SessionKeeperOptions {
  /** A holder of the node's Lease whose identity is the session. */
  holder: (session: string) => LeaseHolder;
  /** A renewal is sent only while this is true. */
  mayRenew: () => boolean;
  /** Called when a session has ended and the next has begun. */
  onSession: (session: string) => void;
  renewEveryMs: number;
  log: Logger;
}

/**
 * The node's session: a random id, carried by its Lease. It ends when the Lease is found missing or with another
 * holder (a fence marks it by replacing the holder); the next one begins at once. While the API server is away it is
 * kept, and renewing goes on being tried.
 */
export class SessionKeeper {
  readonly #options: SessionKeeperOptions;
  #session = randomUUID() as string;
  #holder: LeaseHolder;

  constructor(options: SessionKeeperOptions) {
    this.#options = options;
    this.#holder = options.holder(this.#session);
  }

  get session(): string {
    return this.#session;
  }

  /** Renews until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const waitMs = this.#options.mayRenew() ? await this.#step(signal) : retryMs;
      await delay(waitMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Gives the Lease back at the end, so that nobody waits for this node. Throws if the API server does not answer. */
  async release(): Promise<void> {
    await this.#holder.release();
  }

  /** @returns ms until the next step */
  async #step(signal: AbortSignal): Promise<number> {
    const { log, renewEveryMs } = this.#options;
    try {
      const result = await this.#holder.step({ signal, timeoutMs: callTimeoutMs });
      if (result.outcome === "acquired") log.info("session begun", { session: this.#session, term: result.held.term });
      if (result.outcome === "waiting") return retryMs;
      if (result.outcome !== "lost") return renewEveryMs;
      log.error("the session has ended: its Lease is not ours any more", { session: this.#session, ...result });
      this.#session = randomUUID();
      this.#holder = this.#options.holder(this.#session);
      this.#options.onSession(this.#session);
      return 0;
    } catch (error) {
      if (!signal.aborted) log.warn("the Lease could not be renewed; trying again", { error, retryMs });
      return retryMs;
    }
  }
}
