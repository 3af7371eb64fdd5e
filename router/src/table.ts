import { type Route } from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import { Actor, type ActorIdentity, type ActorSurroundings } from "./actor.ts";
import { type Target } from "./hosts.ts";
import { Holding, type Peer } from "./holding.ts";
import { type ActorNames } from "./names.ts";
import { type UpstreamOptions } from "./upstream.ts";

/** All actors that an atelet holds or a request asks for, by UID; names only lead to UIDs. */
export class RouteTable {
  readonly #names: ActorNames;
  readonly #surroundings: ActorSurroundings;
  readonly #upstreamOptions: UpstreamOptions;
  readonly #actors = new Map<string, Actor>();
  readonly #byName = new Map<string, Set<Actor>>();
  /** Per atelet: what its current stream has named since it began. */
  readonly #named = new Map<string, Set<string>>();
  /** Per atelet whose stream is lost: when its running actors are given up. */
  readonly #lost = new Map<string, NodeJS.Timeout>();
  readonly #serveOnMs: number;

  /**
   * @param serveOnMs how long running actors are still sent requests after the stream to their atelet broke: an atelet
   * that restarts leaves them running, lets our connections be and waits for us before it suspends anything.
   */
  constructor(names: ActorNames, surroundings: ActorSurroundings, upstreamOptions: UpstreamOptions, serveOnMs: number) {
    this.#names = names;
    this.#surroundings = surroundings;
    this.#upstreamOptions = upstreamOptions;
    this.#serveOnMs = serveOnMs;
  }

  actors(): Iterable<Actor> {
    return this.#actors.values();
  }

  /** The actor of that name: the API server's UID decides; where it knows none, an atelet's Route counts. */
  find(target: Target): Actor | undefined {
    const known = this.#names.find(target.key);
    if (known === undefined) return this.#newestOf(target.key);
    return this.#actors.get(known.uid) ?? this.#add({ uid: known.uid, namespace: target.namespace, name: target.name });
  }

  /** Drops an actor that nobody asks for any more. */
  forgetIdle(actor: Actor): void {
    if (!actor.idle) return;
    this.#actors.delete(actor.uid);
    const namesakes = this.#byName.get(actor.key);
    namesakes?.delete(actor);
    if (namesakes?.size === 0) this.#byName.delete(actor.key);
  }

  /** A stream began: all routes of its atelet will come again, then `synced`. */
  attached(peer: Peer): void {
    clearTimeout(this.#lost.get(peer.nodeName));
    this.#named.set(peer.nodeName, new Set());
    for (const holding of this.#holdingsOf(peer)) holding.announce();
  }

  route(peer: Peer, route: Route): void {
    if (route.actor === undefined) throw new Error(`atelet ${peer.nodeName} sent a Route without an actor`);
    const { uid } = route.actor;
    this.#named.get(peer.nodeName)?.add(uid);
    const actor = this.#actors.get(uid) ?? this.#add(route.actor);
    let holding = actor.holding(peer.nodeName);
    if (holding === undefined) {
      holding = new Holding(peer, uid, this.#upstreamOptions);
      actor.addHolding(holding);
    }
    actor.applyRoute(holding, route);
  }

  gone(peer: Peer, uid: string): void {
    const actor = this.#actors.get(uid);
    if (actor !== undefined) this.#removeHolding(actor, peer);
  }

  /** What the atelet did not name since its stream began is not there any more. */
  synced(peer: Peer): void {
    const named = this.#named.get(peer.nodeName);
    this.#named.delete(peer.nodeName);
    for (const actor of [...this.#actors.values()]) {
      if (named?.has(actor.uid) !== true) this.#removeHolding(actor, peer);
    }
  }

  /** Running actors are served on for a while; all others wait for the next stream. */
  lost(peer: Peer): void {
    this.#named.delete(peer.nodeName);
    for (const actor of this.#actors.values()) {
      const holding = actor.holding(peer.nodeName);
      if (holding?.route?.state === "ROUTE_STATE_RUNNING") holding.detach();
      else if (holding !== undefined) actor.loseRoute(holding);
    }
    clearTimeout(this.#lost.get(peer.nodeName));
    const timer = setTimeout(() => {
      this.#lost.delete(peer.nodeName);
      this.#giveUp(peer);
    }, this.#serveOnMs);
    timer.unref();
    this.#lost.set(peer.nodeName, timer);
  }

  #giveUp(peer: Peer): void {
    for (const actor of this.#actors.values()) {
      const holding = actor.holding(peer.nodeName);
      if (holding?.route !== undefined) actor.loseRoute(holding);
    }
  }

  /** The atelet's Lease is gone. */
  removed(peer: Peer): void {
    clearTimeout(this.#lost.get(peer.nodeName));
    for (const actor of [...this.#actors.values()]) this.#removeHolding(actor, peer);
  }

  #removeHolding(actor: Actor, peer: Peer): void {
    const holding = actor.holding(peer.nodeName);
    if (holding === undefined) return;
    actor.removeHolding(holding);
    this.forgetIdle(actor);
  }

  *#holdingsOf(peer: Peer): Iterable<Holding> {
    for (const actor of this.#actors.values()) {
      const holding = actor.holding(peer.nodeName);
      if (holding !== undefined) yield holding;
    }
  }

  #newestOf(key: string): Actor | undefined {
    let newest: Actor | undefined;
    for (const actor of this.#byName.get(key) ?? []) newest = actor;
    return newest;
  }

  #add(identity: ActorIdentity): Actor {
    const actor = new Actor(identity, this.#surroundings);
    this.#actors.set(actor.uid, actor);
    const namesakes = this.#byName.get(actor.key);
    if (namesakes === undefined) this.#byName.set(actor.key, new Set([actor]));
    else namesakes.add(actor);
    return actor;
  }
}
