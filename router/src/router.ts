import { randomUUID } from "node:crypto";
import { type ChannelCredentials } from "@grpc/grpc-js";
import { type Logger } from "@substrate/lib/log.ts";
import { type Check } from "@substrate/lib/metrics.ts";
import { type Registry } from "prom-client";
import { type Actor, type ActorSurroundings } from "./actor.ts";
import { type AteletAddress, Atelets } from "./atelets.ts";
import { HoldBudget } from "./budget.ts";
import { Hosts } from "./hosts.ts";
import { RouterMetrics } from "./metrics.ts";
import { type ActorNames } from "./names.ts";
import { OperatorLink } from "./operator.ts";
import { HttpServer } from "./server.ts";
import { RouteTable } from "./table.ts";
import { Waker } from "./waker.ts";

/** Bounds and times; times in milliseconds. */
export interface RouterLimits {
  maxConnections: number;
  maxHeld: number;
  maxHeldPerActor: number;
  defaultWakeTimeoutMs: number;
  headersTimeoutMs: number;
  connectTimeoutMs: number;
  reattachPatienceMs: number;
  refusedPatienceMs: number;
  shutdownGraceMs: number;
}

export interface RouterOptions {
  listen: string;
  domain: string;
  limits: RouterLimits;
  credentials: ChannelCredentials;
  /** What the Actor objects say; the router works on without, as far as atelets know the actors. */
  names: ActorNames;
  registry: Registry;
  log: Logger;
}

/** The router without its sources: who runs it tells it atelets and the operator (sources.ts does from Leases). */
export class Router {
  readonly #options: RouterOptions;
  readonly #atelets: Atelets;
  readonly #operator: OperatorLink;
  readonly #server: HttpServer;

  constructor(options: RouterOptions) {
    this.#options = options;
    const { limits, names, log, registry, credentials } = options;
    const metrics = new RouterMetrics(registry);
    const budget = new HoldBudget(limits.maxHeld, limits.maxHeldPerActor);
    const surroundings: ActorSurroundings = {
      budget,
      defaultWakeTimeoutMs: limits.defaultWakeTimeoutMs,
      wake: (actor, at) => waker.wake(actor, at),
      attaching: (actor) => this.#atelets.attaching(this.#expectedNode(actor)),
    };
    const table = new RouteTable(names, surroundings, limits, limits.reattachPatienceMs);
    this.#atelets = new Atelets({
      routerId: randomUUID(),
      credentials,
      listener: table,
      reattachPatienceMs: limits.reattachPatienceMs,
      log,
    });
    this.#operator = new OperatorLink(credentials);
    const waker = new Waker(this.#atelets, this.#operator, metrics, log);
    const knowledge = {
      isWhole: () => names.isSynced && this.#atelets.isSettled,
      routesKnown: () => this.#atelets.settled(),
      namesKnown: () => withinMs(limits.reattachPatienceMs, names.synced),
    };
    this.#server = new HttpServer(limits, {
      hosts: new Hosts(options.domain),
      table,
      knowledge,
      metrics,
      log,
      refusedPatienceMs: limits.refusedPatienceMs,
    });
    metrics.watch(registry, {
      held: () => budget.held,
      open: () => [...table.actors()].reduce((sum, actor) => sum + actor.openCount, 0),
      attached: () => this.#atelets.attachedCount,
    });
  }

  /** Answers the port that is bound. */
  listen(): Promise<number> {
    return this.#server.listen(this.#options.listen);
  }

  setAtelets(addresses: readonly AteletAddress[]): void {
    this.#atelets.setAll(addresses);
  }

  setOperator(address: string | undefined): void {
    this.#operator.setAddress(address);
  }

  /** For /readyz: not yet, or not any more. */
  get readiness(): Record<string, Check> {
    return {
      atelets: () => (this.#atelets.isSettled ? undefined : "the atelets' Leases or routes are not known yet"),
      server: () => (this.#server.isDraining ? "shutting down" : undefined),
    };
  }

  /** Lets open and held requests end within the grace, then leaves the atelets. */
  async stop(): Promise<void> {
    await this.#server.close(this.#options.limits.shutdownGraceMs);
    await this.#atelets.stop();
    this.#operator.close();
  }

  #expectedNode(actor: Actor): string | undefined {
    return this.#options.names.find(actor.key)?.nodeName ?? actor.lastNode;
  }
}

async function withinMs(ms: number, event: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([event, over]);
  clearTimeout(timer);
}
