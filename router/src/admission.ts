import { setTimeout as delay } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type IncomingMessage } from "node:http";
import { type Actor, type FailedTry } from "./actor.ts";
import { type Hosts, type Target } from "./hosts.ts";
import { type RouterMetrics } from "./metrics.ts";
import { type RouteTable } from "./table.ts";
import { Ticket } from "./ticket.ts";

/** An actor that was created a moment ago may not have come over the watch yet: so long its name is looked for. */
const NEW_NAME_MS = 500;
const LOOK_EVERY_MS = 20;

/** Whether what the router knows is whole: right after its start an unknown name may only be unknown yet. */
interface Knowledge {
  isWhole(): boolean;
  /** Ends when the atelets have told what they hold, or when the patience for that is over. */
  routesKnown(): Promise<void>;
  /** Ends when the Actor objects have been read, or when the patience for that is over. */
  namesKnown(): Promise<void>;
}

export interface AdmissionDeps {
  hosts: Hosts;
  table: RouteTable;
  knowledge: Knowledge;
  metrics: RouterMetrics;
}

/** Brings one request to its ticket: finds its actor, holds it while the actor isn't ready. */
export class Admission {
  readonly #deps: AdmissionDeps;
  readonly arrivedAt = performance.now();
  #target: Target | undefined;
  #actor: Actor | undefined;
  #abort: AbortController | undefined;

  constructor(deps: AdmissionDeps) {
    this.#deps = deps;
  }

  /** "namespace/name", once it is known. */
  get key(): string | undefined {
    return this.#target?.key;
  }

  /** The ticket at once where the actor runs: the hot path has no promise in it. @throws {SubstrateError} */
  enter(request: IncomingMessage): Ticket | Promise<Ticket> {
    const target = this.#deps.hosts.find(request.headers);
    if (target === undefined) {
      throw new SubstrateError("UNKNOWN_ACTOR", `this request names no actor: ${this.#deps.hosts.help()}`);
    }
    this.#target = target;
    this.#actor = this.#deps.table.find(target);
    if (this.#actor === undefined) return this.#findLater(target);
    const admission = this.#actor.admit(target.port);
    if (admission instanceof Ticket) return admission;
    if (admission !== undefined) {
      this.#deps.table.forgetIdle(this.#actor);
      throw admission;
    }
    return this.hold();
  }

  /** Waits for the actor (again, `after` a failed try). Rejects with SubstrateError, or when `leave` is called. */
  async hold(after?: FailedTry): Promise<Ticket> {
    const { table, metrics } = this.#deps;
    // The name may belong to a newer actor by now: identity is the UID.
    const actor = this.#target === undefined ? undefined : table.find(this.#target);
    if (actor === undefined || this.#target === undefined) {
      throw new SubstrateError("UNKNOWN_ACTOR", `actor ${this.key ?? ""} is gone`);
    }
    this.#actor = actor;
    this.#abort ??= new AbortController();
    const heldAt = performance.now();
    try {
      return await actor.hold({
        port: this.#target.port,
        arrivedAt: this.arrivedAt,
        signal: this.#abort.signal,
        ...(after === undefined ? {} : { after }),
      });
    } finally {
      metrics.heldSeconds.observe((performance.now() - heldAt) / 1000);
      table.forgetIdle(actor);
    }
  }

  /** The client has gone: it waits no more. */
  leave(): void {
    this.#abort?.abort(new Error("the client has gone"));
  }

  async #findLater(target: Target): Promise<Ticket> {
    const { knowledge, table } = this.#deps;
    await knowledge.routesKnown();
    if (table.find(target) !== undefined) return this.hold();
    await knowledge.namesKnown();
    const endMs = performance.now() + NEW_NAME_MS;
    do {
      if (table.find(target) !== undefined) return this.hold();
      await delay(LOOK_EVERY_MS);
    } while (performance.now() < endMs);
    if (knowledge.isWhole()) throw unknownActor(target);
    throw new SubstrateError(
      "NODE_UNAVAILABLE",
      `actor ${target.key} isn't known to any attached node, and the router can't ask the API server whether it exists`,
      { retryAfterMs: 2_000 },
    );
  }
}

function unknownActor(target: Target): SubstrateError {
  return new SubstrateError(
    "UNKNOWN_ACTOR",
    `there is no actor ${target.name} in namespace ${target.namespace}: see "kubectl get actors -n ${target.namespace}"`,
  );
}
