import { type OpenRequests, type Route } from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import { Upstream, type UpstreamOptions } from "./upstream.ts";

/** Outside a gate, counts are for the atelet's idle clock only: not more often than this. */
const reportEveryMs = 100;

/** What a holding needs of the stream to its atelet. */
export interface Peer {
  readonly nodeName: string;
  /** False when there is no stream now: the count is announced when it is back. */
  report(counts: OpenRequests): boolean;
}

/**
 * What one atelet says about one actor (the newest Route), and what this router owes it: how many requests it has
 * open there, and the gate that it has closed. Outlives a lost stream as long as requests are open.
 */
export class Holding {
  readonly peer: Peer;
  readonly uid: string;
  /** Undefined when the atelet's stream is lost for long, or the actor did not run then. */
  route: Route | undefined;
  upstreams: readonly Upstream[] = [];
  /** Rises with every Route and every loss: a request that failed on one version waits for the next. */
  version = 0;
  #attached = true;
  readonly #upstreamOptions: UpstreamOptions;
  #open = 0;
  #closedGate = 0n;
  #reported: OpenRequests;
  #timer: NodeJS.Timeout | undefined;

  constructor(peer: Peer, uid: string, upstreamOptions: UpstreamOptions) {
    this.peer = peer;
    this.uid = uid;
    this.#upstreamOptions = upstreamOptions;
    this.#reported = { actorUid: uid, open: 0, gateId: 0n };
  }

  get open(): number {
    return this.#open;
  }

  /** Whether the atelet's stream is there: without it nobody knows whether the actor still runs where its Route says. */
  get isAttached(): boolean {
    return this.#attached;
  }

  /**
   * Takes a Route over and, if it closes a gate, lets go of connections that carry nothing and acknowledges it at once
   * with the count of this moment.
   */
  apply(route: Route): void {
    this.#attached = true;
    this.route = route;
    this.version += 1;
    const kept = this.upstreams;
    this.upstreams = route.endpoints.map(
      (endpoint) => kept.find((upstream) => upstream.is(endpoint)) ?? new Upstream(endpoint, this.#upstreamOptions),
    );
    this.#discard(kept.filter((upstream) => !this.upstreams.includes(upstream)));
    if (route.state === "ROUTE_STATE_GATED") {
      for (const upstream of this.upstreams) upstream.closeIdle();
      this.#closedGate = route.gateId;
      this.#report();
    }
  }

  /** The stream is lost, the actor most likely not: its Route stays for a while. Old gate numbers mean nothing. */
  detach(): void {
    this.#attached = false;
    this.#closedGate = 0n;
    this.#cancelTimer();
  }

  /** Nothing new goes there any more. Gate numbers of a lost stream mean nothing to the next one. */
  lose(): void {
    this.route = undefined;
    this.version += 1;
    this.detach();
  }

  /** A new stream begins: tell it what is still open from before. */
  announce(): void {
    this.#attached = true;
    this.#reported = { actorUid: this.uid, open: 0, gateId: 0n };
    if (this.#open > 0) this.#report();
  }

  /** Nothing of the actor is on that node any more. */
  drop(): void {
    this.lose();
    this.#discard(this.upstreams);
    this.upstreams = [];
  }

  /** Counts a request as open. Synchronous with the check that lets it go, so that no gate can slip between. */
  begin(): void {
    this.#open += 1;
    this.#changed();
  }

  end(): void {
    if (this.#open === 0) throw new Error(`open requests of actor ${this.uid} would fall below zero`);
    this.#open -= 1;
    this.#changed();
  }

  #changed(): void {
    if (this.route?.state === "ROUTE_STATE_GATED") {
      this.#report();
      return;
    }
    // 0 → 1 and 1 → 0 matter; between them the number is nobody's business until a gate asks.
    if (this.#timer !== undefined || this.#open > 0 === this.#reported.open > 0) return;
    this.#report();
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#changed();
    }, reportEveryMs);
    this.#timer.unref();
  }

  #report(): void {
    const counts = { actorUid: this.uid, open: this.#open, gateId: this.#closedGate };
    if (this.peer.report(counts)) this.#reported = counts;
  }

  #cancelTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #discard(upstreams: readonly Upstream[]): void {
    for (const upstream of upstreams) {
      upstream.discard(new Error(`actor ${this.uid} no longer answers at ${upstream.address}:${upstream.port}`));
    }
  }
}
