import { setTimeout as sleep } from "node:timers/promises";
import { type Logger } from "../log.ts";
import { type CallOptions, type KubeClient } from "./client.ts";
import { isAlreadyExists, isConflict, isNotFound } from "./errors.ts";
import { type Lease, leases, microTime } from "./types.ts";

export interface LeaseHolderOptions {
  client: KubeClient;
  namespace: string;
  name: string;
  /** The Lease's holderIdentity while it is ours: a new random id for every holder. */
  identity: string;
  durationMs: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  /**
   * What to do with a Lease of another holder: `AtOnce` for a Lease that only ever has one owner (a node's: the holder
   * is an ended session), `WhenExpired` for one that several compete for (a leader's).
   */
  takeOver: "AtOnce" | "WhenExpired";
  /**
   * The term of a Lease that is made anew, because there is none or it has no leaseTransitions; default 1. Where others
   * remember the highest term that they have heard (a leader's), it must be above all terms of a Lease that was deleted:
   * `unixSeconds`.
   */
  firstTerm?: () => number;
  log: Logger;
  /** Monotonic clock in milliseconds; default `performance.now()`. */
  now?: () => number;
}

/**
 * A `firstTerm` that nobody has heard of: holders change much more rarely than once a second, so that terms which rise
 * by one from an earlier time are below it, as long as the machines' clocks are not set back by more than the Lease's
 * age. Fits leaseTransitions, an int32, until 2038-01-19.
 */
export function unixSeconds(): number {
  return Math.floor(Date.now() / 1_000);
}

/** The Lease as the API server acknowledged it last. */
export interface HeldLease {
  /** When the acknowledged write was *sent*, on the holder's clock: deadlines count from here. */
  sentMs: number;
  /** leaseTransitions: rises with every new holder, from `firstTerm`. */
  term: number;
  lease: Lease;
}

export type LeaseResult =
  | { outcome: "acquired" | "renewed"; held: HeldLease }
  /** Another holder's Lease has not run out yet. */
  | { outcome: "waiting"; holder: string }
  /** It was ours and is over: go on with a new LeaseHolder of a new identity. */
  | { outcome: "lost"; reason: "foreign" | "missing" | "expired" };

/**
 * Holds one Lease by conditional writes. `step` does one thing (acquire or renew) and says what came of it; errors of
 * the API server are thrown and change nothing. `run` steps at an interval until the Lease is lost. Never two steps
 * at once.
 */
export class LeaseHolder {
  readonly #options: LeaseHolderOptions;
  readonly #now: () => number;
  #held: HeldLease | undefined;
  #lost: (LeaseResult & { outcome: "lost" }) | undefined;
  #kicked = new AbortController();
  /** The other holder's record, and since when we have seen it unchanged. */
  #observed: { record: string; sinceMs: number } | undefined;

  constructor(options: LeaseHolderOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  get identity(): string {
    return this.#options.identity;
  }

  /** Undefined when the Lease isn't ours or has run out on our own clock. */
  get held(): HeldLease | undefined {
    if (this.#held === undefined || this.#now() >= this.#held.sentMs + this.#options.durationMs) return undefined;
    return this.#held;
  }

  /** Acquires the Lease, or renews it when it is ours. Throws KubeError when the API server doesn't answer. */
  async step(call: CallOptions = {}): Promise<LeaseResult> {
    if (this.#lost !== undefined) return this.#lost;
    if (this.#held === undefined) return this.#acquire(call);
    if (this.held === undefined) return this.#lose("expired");
    return this.#renew(this.#held, call);
  }

  /**
   * Steps every `everyMs` (after a failure each second at the latest) and reports each result, until the Lease is lost
   * or `signal` aborts. While the API server is away the Lease is ours until it runs out by our clock.
   */
  async run(everyMs: number, signal: AbortSignal, onResult: (result: LeaseResult) => void): Promise<void> {
    const stopped = (): boolean => signal.aborted;
    while (!stopped()) {
      let delayMs = everyMs;
      this.#kicked = new AbortController();
      try {
        const result = await this.step({ signal, timeoutMs: this.#remainingMs() });
        onResult(result);
        if (result.outcome === "lost") return;
      } catch (error) {
        if (stopped()) return;
        delayMs = Math.min(everyMs, 1_000);
        this.#options.log.warn("lease not renewed", { lease: this.#options.name, error });
      }
      if (this.#held !== undefined) delayMs = Math.min(delayMs, this.#remainingMs());
      const woken = AbortSignal.any([signal, this.#kicked.signal]);
      await sleep(delayMs, undefined, { signal: woken }).catch(() => undefined);
    }
  }

  /** Ends the pause of `run` while the Lease isn't ours: somebody has seen that it is free. */
  kick(): void {
    if (this.#held === undefined) this.#kicked.abort();
  }

  /** Gives the Lease back, so that the next holder need not wait. Does nothing when it isn't ours. */
  async release(): Promise<void> {
    const { client, name, namespace, identity } = this.#options;
    this.#held = undefined;
    const current = await client.get(leases, name, namespace);
    if (current?.spec?.holderIdentity !== identity) return;
    const spec = { ...current.spec, renewTime: microTime(new Date()) };
    delete spec.holderIdentity;
    try {
      await client.replace(leases, { ...current, spec });
    } catch (error) {
      if (!isConflict(error) && !isNotFound(error)) throw error;
    }
  }

  async #acquire(call: CallOptions): Promise<LeaseResult> {
    const { client, name, namespace } = this.#options;
    const current = await client.get(leases, name, namespace, call);
    if (current !== undefined && !this.#mayTakeOver(current))
      return { outcome: "waiting", holder: current.spec?.holderIdentity ?? "" };
    const held = await this.#write(current, call);
    if (held === undefined) return { outcome: "waiting", holder: "a faster one" };
    return { outcome: "acquired", held };
  }

  async #renew(held: HeldLease, call: CallOptions): Promise<LeaseResult> {
    const renewed = await this.#write(held.lease, call);
    if (renewed !== undefined) return { outcome: "renewed", held: renewed };
    const { client, name, namespace, identity } = this.#options;
    const current = await client.get(leases, name, namespace, call);
    if (current === undefined) return this.#lose("missing");
    if (current.spec?.holderIdentity !== identity || current.metadata.uid !== held.lease.metadata.uid)
      return this.#lose("foreign");
    // still ours: touched by a person (an annotation), or by a renewal of ours whose answer was lost
    const again = await this.#write(current, call);
    return again === undefined ? this.#lose("foreign") : { outcome: "renewed", held: again };
  }

  #mayTakeOver(current: Lease): boolean {
    const { holderIdentity = "", renewTime = "", leaseDurationSeconds = 0 } = current.spec ?? {};
    // our own id there: we wrote it, and the answer was lost
    if (holderIdentity === "" || holderIdentity === this.#options.identity) return true;
    if (this.#options.takeOver === "AtOnce") return true;
    // clocks of two machines are never compared: we must have seen the same record for its whole duration
    const record = `${holderIdentity} ${renewTime}`;
    const nowMs = this.#now();
    if (this.#observed?.record !== record) this.#observed = { record, sinceMs: nowMs };
    return nowMs - this.#observed.sinceMs >= leaseDurationSeconds * 1_000;
  }

  /** Makes `current` (or a new Lease) ours; undefined when somebody else wrote first. */
  async #write(current: Lease | undefined, call: CallOptions): Promise<HeldLease | undefined> {
    const { client, name, namespace, identity, durationMs, labels, annotations, firstTerm } = this.#options;
    const time = microTime(new Date());
    const before = current?.spec;
    const mine = before?.holderIdentity === identity;
    const termBefore = before?.leaseTransitions;
    const term = termBefore === undefined ? (firstTerm?.() ?? 1) : termBefore + (mine ? 0 : 1);
    const desired = {
      metadata: {
        ...(current?.metadata ?? { name, namespace }),
        labels: { ...current?.metadata.labels, ...labels },
        annotations: { ...current?.metadata.annotations, ...annotations },
      },
      spec: {
        holderIdentity: identity,
        leaseDurationSeconds: Math.ceil(durationMs / 1_000),
        acquireTime: mine ? (before.acquireTime ?? time) : time,
        renewTime: time,
        leaseTransitions: term,
      },
    };
    const sentMs = this.#now();
    try {
      const lease = await (current === undefined
        ? client.create(leases, desired, call)
        : client.replace(leases, desired, call));
      this.#held = { sentMs, term, lease };
      return this.#held;
    } catch (error) {
      if (isConflict(error) || isAlreadyExists(error) || (current !== undefined && isNotFound(error))) return undefined;
      throw error;
    }
  }

  #lose(reason: "foreign" | "missing" | "expired"): LeaseResult {
    this.#held = undefined;
    this.#lost = { outcome: "lost", reason };
    return this.#lost;
  }

  /** Until the Lease runs out on our clock; a whole duration when it isn't ours. */
  #remainingMs(): number {
    const { durationMs } = this.#options;
    if (this.#held === undefined) return durationMs;
    return Math.max(1, Math.ceil(this.#held.sentMs + durationMs - this.#now()));
  }
}
