/** What of the Leases' reflector is needed. */
export interface WatchState {
  /** `performance.now()` of when the watch was opened that is open now; undefined while there is none. */
  connectedSinceMs: number | undefined;
}

/**
 * For how long a node's Lease has not been seen to be renewed, by our own monotonic clock: times written in Leases are
 * other machines'. The count begins anew when we begin to lead and when the API server is back, because nobody could
 * have renewed anything that we would have seen.
 */
export class LeaseClock {
  readonly #watch: WatchState;
  readonly #now: () => number;
  readonly #renewals = new Map<string, { renewal: string; atMs: number }>();
  #startedMs: number;

  constructor(watch: WatchState, now: () => number = () => performance.now()) {
    this.#watch = watch;
    this.#now = now;
    this.#startedMs = now();
  }

  /** Forgets all: every count begins now. */
  restart(): void {
    this.#renewals.clear();
    this.#startedMs = this.#now();
  }

  /** @param renewal what every renewal changes; undefined when there is no Lease */
  observe(nodeName: string, renewal: string | undefined): void {
    if (renewal === undefined || this.#renewals.get(nodeName)?.renewal === renewal) return;
    this.#renewals.set(nodeName, { renewal, atMs: this.#now() });
  }

  /** How long ago a renewal was seen; undefined when none was since the count began. */
  sinceRenewalMs(nodeName: string): number | undefined {
    const renewal = this.#renewals.get(nodeName);
    return renewal && this.#now() - renewal.atMs;
  }

  silentMs(nodeName: string): number {
    const { connectedSinceMs } = this.#watch;
    if (connectedSinceMs === undefined) return 0;
    const renewedMs = this.#renewals.get(nodeName)?.atMs ?? 0;
    return Math.max(0, this.#now() - Math.max(this.#startedMs, connectedSinceMs, renewedMs));
  }
}
