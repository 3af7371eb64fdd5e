import { type Leader } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type LeaseHolder, type LeaseResult } from "@substrate/lib/kube/lease.ts";
import { type Logger } from "@substrate/lib/log.ts";

/** Renewals leave room for five failed tries within the Lease's duration. */
const renewalsPerDuration = 6;

export interface LeadershipListener {
  /** The Lease is ours under this term. */
  started(term: number): void;
  /** It isn't any more: nothing may be decided from now on. */
  stopped(reason: string): void;
}

/** Whether this process leads, and the term that it proves it with. */
export class Leadership {
  readonly #newHolder: () => LeaseHolder;
  readonly #renewEveryMs: number;
  readonly #log: Logger;
  #holder: LeaseHolder;
  /** Whose Lease it was when that was last told. */
  #waitsFor: string | undefined;
  /** Whether the listener believes that we lead. */
  #announced = false;

  /** `newHolder` makes one of a new identity: a lost Lease is never taken up again, only acquired anew. */
  constructor(newHolder: () => LeaseHolder, leaseDurationMs: number, log: Logger) {
    this.#renewEveryMs = leaseDurationMs / renewalsPerDuration;
    this.#newHolder = newHolder;
    this.#holder = newHolder();
    this.#log = log;
  }

  get leading(): boolean {
    return this.#holder.held !== undefined;
  }

  /** The Lease may be free now: it is tried for at once. */
  kick(): void {
    this.#holder.kick();
  }

  /** Throws SHUTTING_DOWN while this process does not lead. */
  proof(): Leader {
    const held = this.#holder.held;
    if (held === undefined) {
      const message = "this operator does not lead now: it has just begun, or another one does";
      throw new SubstrateError("SHUTTING_DOWN", message, { retryAfterMs: 1_000 });
    }
    return { term: BigInt(held.term) };
  }

  /** Competes for the Lease until `signal` aborts, then gives it back. */
  async run(signal: AbortSignal, listener: LeadershipListener): Promise<void> {
    const stopped = (): boolean => signal.aborted;
    while (!stopped()) {
      await this.#holder.run(this.#renewEveryMs, signal, (result) => {
        this.#heard(result, listener);
      });
      if (this.#announced) listener.stopped("shutting down");
      this.#announced = false;
      await this.#release();
      this.#holder = this.#newHolder();
    }
  }

  /** So that nobody, our own next holder neither, waits for the end of a Lease that isn't used any more. */
  async #release(): Promise<void> {
    try {
      await this.#holder.release();
    } catch (error) {
      this.#log.warn("the operator's Lease was not given back; it runs out by itself", { error });
    }
  }

  #heard(result: LeaseResult, listener: LeadershipListener): void {
    switch (result.outcome) {
      case "acquired":
      case "renewed":
        if (this.#announced) return;
        this.#announced = true;
        listener.started(result.held.term);
        return;
      case "waiting":
        // a standby hears it every other second, for as long as it stands by
        if (result.holder === this.#waitsFor) return;
        this.#waitsFor = result.holder;
        this.#log.info("waiting for the operator's Lease", { holder: result.holder });
        return;
      case "lost":
        if (this.#announced) listener.stopped(result.reason);
        this.#announced = false;
        return;
    }
  }
}
