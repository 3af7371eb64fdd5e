import { asSubstrateError, type SubstrateError } from "@substrate/lib/errors.ts";
import { type Route } from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import { type HoldBudget } from "./budget.ts";
import { type Holding } from "./holding.ts";
import * as refusals from "./refusals.ts";
import { Ticket } from "./ticket.ts";
import { selectUpstream } from "./upstream.ts";

/** Between two wakes that did not help: doubles from the first to the last. */
const firstRetryMs = 100;
const lastRetryMs = 2_000;
/** What failed longer ago, before a request came, may be mended by now: its wake waits for something else. */
const recentMs = 10_000;

export interface ActorIdentity {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
}

export interface ActorSurroundings {
  readonly budget: HoldBudget;
  /** Until an atelet has said the actor's own. */
  readonly defaultWakeTimeoutMs: number;
  /** Wakes it at the atelet that holds it, or, without one, through the operator (which answers no Route). */
  wake(actor: Actor, at: Holding | undefined): Promise<Route | undefined>;
  /** While the node that had the actor is being attached: ends when it is worth looking again. */
  attaching(actor: Actor): Promise<void> | undefined;
}

/** A request's failed try: it waits for a newer Route than that, or until `retryAt` (ms of performance.now()). */
export interface FailedTry {
  readonly holding: Holding;
  readonly version: number;
  readonly retryAt: number;
}

export interface HoldOptions {
  port: string | undefined;
  /** When the request came, ms of performance.now(): its wake timeout counts from there. */
  arrivedAt: number;
  after?: FailedTry;
  signal: AbortSignal;
}

interface HeldRequest {
  readonly options: HoldOptions;
  go(ticket: Ticket): void;
  refuse(error: Error): void;
}

/**
 * One actor as this router sees it: where it is held, its requests that wait, and the one wake in flight.
 * Every change ends in #settle, which decides from the newest levels alone.
 */
export class Actor {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly key: string;
  /** The node that held it last: where to expect it again after a lost stream. */
  lastNode: string | undefined;
  readonly #surroundings: ActorSurroundings;
  readonly #holdings = new Map<string, Holding>();
  readonly #held = new Set<HeldRequest>();
  #current: Holding | undefined;
  #wakeTimeoutMs: number;
  #waking = false;
  #askOperator = false;
  #awaitingAttach = false;
  #lastError: { error: SubstrateError; at: number } | undefined;
  #retryMs = firstRetryMs;
  #wakeNotBefore = 0;
  #timer: { handle: NodeJS.Timeout; at: number } | undefined;

  constructor(identity: ActorIdentity, surroundings: ActorSurroundings) {
    this.uid = identity.uid;
    this.namespace = identity.namespace;
    this.name = identity.name;
    this.key = `${identity.namespace}/${identity.name}`;
    this.#surroundings = surroundings;
    this.#wakeTimeoutMs = surroundings.defaultWakeTimeoutMs;
  }

  get heldCount(): number {
    return this.#held.size;
  }

  get openCount(): number {
    let open = 0;
    for (const holding of this.#holdings.values()) open += holding.open;
    return open;
  }

  /** Nothing is known of it and nobody waits for it: it may be forgotten. */
  get idle(): boolean {
    return this.#holdings.size === 0 && this.#held.size === 0 && !this.#waking;
  }

  holding(nodeName: string): Holding | undefined {
    return this.#holdings.get(nodeName);
  }

  addHolding(holding: Holding): void {
    this.#holdings.set(holding.peer.nodeName, holding);
  }

  removeHolding(holding: Holding): void {
    holding.drop();
    this.#holdings.delete(holding.peer.nodeName);
    this.#choose();
    this.#settle();
  }

  applyRoute(holding: Holding, route: Route): void {
    holding.apply(route);
    this.lastNode = holding.peer.nodeName;
    if (route.wakeTimeoutMs > 0n) this.#wakeTimeoutMs = Number(route.wakeTimeoutMs);
    if (route.state === "ROUTE_STATE_RUNNING") {
      this.#retryMs = firstRetryMs;
      this.#wakeNotBefore = 0;
      this.#lastError = undefined;
      this.#askOperator = false;
    }
    this.#choose();
    this.#settle();
  }

  /** The stream to its atelet is lost; the holding stays for its open requests. */
  loseRoute(holding: Holding): void {
    holding.lose();
    this.#choose();
    this.#settle();
  }

  /** A ticket (already counted as open), the reason of a refusal, or undefined: then the request must be held. */
  admit(port: string | undefined): Ticket | SubstrateError | undefined {
    const holding = this.#current;
    const state = holding?.route?.state;
    if (holding === undefined || state === undefined) return undefined;
    switch (state) {
      case "ROUTE_STATE_RUNNING": {
        const upstream = selectUpstream(holding.upstreams, port);
        if (upstream === undefined) return refusals.unknownPort(this.key, port, holding.upstreams);
        return new Ticket(holding, upstream);
      }
      case "ROUTE_STATE_ASLEEP":
      case "ROUTE_STATE_GATED":
        return undefined;
      case "ROUTE_STATE_HELD":
        return refusals.held(this.key);
      case "ROUTE_STATE_FAILING":
        return refusals.failing(this.key, holding);
      case "ROUTE_STATE_UNSPECIFIED":
      case "UNRECOGNIZED":
        return refusals.unknownState(this.key, state);
    }
  }

  /**
   * Waits until the request may go, waking the actor if it sleeps.
   * @throws {SubstrateError} when it is refused or its wake timeout is over; the signal's reason when it aborts
   */
  hold(options: HoldOptions): Promise<Ticket> {
    options.signal.throwIfAborted();
    const { budget } = this.#surroundings;
    if (!budget.take(this.#held.size)) {
      return Promise.reject(refusals.tooManyHeld(this.key, this.#held.size, budget.held));
    }
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        clearTimeout(deadline);
        options.signal.removeEventListener("abort", abort);
        this.#held.delete(request);
        budget.give();
      };
      const request: HeldRequest = {
        options,
        go: (ticket) => {
          leave();
          resolve(ticket);
        },
        refuse: (error) => {
          leave();
          reject(error);
        },
      };
      const abort = (): void => {
        request.refuse(options.signal.reason instanceof Error ? options.signal.reason : new Error("aborted"));
      };
      const waitedMs = performance.now() - options.arrivedAt;
      const deadline = setTimeout(
        () => {
          const waited = performance.now() - options.arrivedAt;
          const failed = this.#lastError;
          const isRecent =
            failed !== undefined && failed.at >= Math.min(options.arrivedAt, performance.now() - recentMs);
          const lastError = isRecent ? failed.error : undefined;
          request.refuse(refusals.notInTime(this.key, waited, this.#phase(), lastError));
        },
        Math.max(0, this.#wakeTimeoutMs - waitedMs),
      );
      options.signal.addEventListener("abort", abort, { once: true });
      this.#held.add(request);
      this.#settle();
    });
  }

  /** The highest epoch is the newest grant; an atelet that still shows an older one is about to let go. */
  #choose(): void {
    let best: Holding | undefined;
    for (const holding of this.#holdings.values()) {
      if (holding.route !== undefined && (best?.route === undefined || holding.route.epoch >= best.route.epoch)) {
        best = holding;
      }
    }
    this.#current = best;
  }

  #settle(): void {
    if (this.#held.size === 0) return;
    const state = this.#current?.route?.state;
    if (state === "ROUTE_STATE_GATED") return;
    if (this.#current !== undefined && state !== "ROUTE_STATE_ASLEEP") {
      this.#answerHeld();
      return;
    }
    if (this.#current === undefined && this.#waitForAttach()) return;
    this.#wake();
  }

  #answerHeld(): void {
    const now = performance.now();
    for (const request of [...this.#held]) {
      const { after, port } = request.options;
      if (
        after?.holding === this.#current &&
        after?.version === this.#current?.version &&
        now < (after?.retryAt ?? 0)
      ) {
        this.#settleAt(after?.retryAt ?? now);
        continue;
      }
      const admission = this.admit(port);
      if (admission instanceof Ticket) request.go(admission);
      else if (admission !== undefined) request.refuse(admission);
    }
  }

  #waitForAttach(): boolean {
    if (this.#waking) return false;
    if (this.#awaitingAttach) return true;
    const attaching = this.#surroundings.attaching(this);
    if (attaching === undefined) return false;
    this.#awaitingAttach = true;
    void attaching.then(() => {
      this.#awaitingAttach = false;
      this.#settle();
    });
    return true;
  }

  #wake(): void {
    if (this.#waking) return;
    if (performance.now() < this.#wakeNotBefore) {
      this.#settleAt(this.#wakeNotBefore);
      return;
    }
    const at = this.#askOperator ? undefined : this.#current;
    const version = at?.version;
    this.#waking = true;
    this.#surroundings.wake(this, at).then(
      (route) => {
        this.#waking = false;
        this.#lastError = undefined;
        this.#askOperator = false;
        this.#backOff();
        // The stream's word is newer than the call's if it came meanwhile: applying this one could undo a gate.
        if (route !== undefined && at !== undefined && at.version === version) this.applyRoute(at, route);
        else this.#settle();
      },
      (reason: unknown) => {
        this.#waking = false;
        this.#wakeFailed(asSubstrateError(reason), at);
      },
    );
  }

  #wakeFailed(error: SubstrateError, at: Holding | undefined): void {
    const goElsewhere = at !== undefined && refusals.mayGoElsewhere(error);
    this.#askOperator = goElsewhere;
    if (goElsewhere || refusals.mayPass(error)) {
      this.#lastError = { error, at: performance.now() };
      if (!goElsewhere) this.#backOff();
      this.#settle();
      return;
    }
    this.#lastError = undefined;
    for (const request of [...this.#held]) request.refuse(refusals.wakeFailed(this.key, error));
  }

  #backOff(): void {
    this.#wakeNotBefore = performance.now() + this.#retryMs;
    this.#retryMs = Math.min(lastRetryMs, this.#retryMs * 2);
  }

  #settleAt(at: number): void {
    if (this.#timer !== undefined && this.#timer.at <= at) return;
    clearTimeout(this.#timer?.handle);
    const handle = setTimeout(
      () => {
        this.#timer = undefined;
        this.#settle();
      },
      Math.max(1, at - performance.now()),
    );
    this.#timer = { handle, at };
  }

  #phase(): string {
    if (this.#current?.route?.state === "ROUTE_STATE_GATED") return "a suspend is under way";
    if (this.#current?.route?.state === "ROUTE_STATE_RUNNING") return "it refuses connections";
    if (this.#awaitingAttach) return `its node ${this.lastNode ?? ""} is not attached`;
    return this.#waking ? "its wake goes on" : "its wake is tried again";
  }
}
