import { type ActorContext } from "./actor-context.ts";
import { type ActorSandbox } from "./actor-sandbox.ts";
import { onlyDamaged } from "./damaged.ts";
import { type Lives } from "./lives.ts";
import { type Operations } from "./operations.ts";
import { heldMessage } from "./refusals.ts";
import { type RouteLevel } from "./route-level.ts";

export interface RouteOptions extends Pick<ActorContext, "node" | "name" | "record" | "generations"> {
  operations: Operations;
  sandbox: ActorSandbox;
  lives: Lives;
}

/** What routers are told of one actor: whether its requests go on, wait, or are refused. */
export class Route {
  readonly #options: RouteOptions;
  #gateId = 0;
  #ended = false;

  constructor(options: RouteOptions) {
    this.#options = options;
  }

  get ended(): boolean {
    return this.#ended;
  }

  level(): RouteLevel {
    const { name, record, operations, sandbox, lives } = this.#options;
    const level: RouteLevel = {
      actor: record.actor,
      epoch: record.grant.epoch,
      state: "ASLEEP",
      gateId: this.#gateId,
      endpoints: [],
      wakeTimeoutMs: record.program.wakeTimeoutMs,
      message: "",
      retryAfterMs: 0,
      reason: "",
    };
    const { running } = sandbox;
    if (operations.type === "SUSPEND" || operations.type === "TAG") {
      return { ...level, state: "GATED", endpoints: running?.endpoints ?? [] };
    }
    if (record.held) return { ...level, state: "HELD", message: heldMessage(name) };
    if (running !== undefined && !running.cut && operations.type === undefined) {
      return { ...level, state: "RUNNING", endpoints: running.endpoints };
    }
    const failing = { ...level, state: "FAILING" as const };
    const refusal = lives.refusal();
    if (refusal !== undefined) {
      return { ...failing, message: refusal.message, retryAfterMs: refusal.retryAfterMs ?? 0 };
    }
    const damaged = onlyDamaged(this.#options);
    return damaged === undefined ? level : { ...failing, message: damaged.message, reason: damaged.code };
  }

  publish(): void {
    if (this.#ended) return;
    this.#options.node.routers.publish(this.level());
  }

  /** Lets routers hold new requests. @returns the gate's id. */
  closeGate(): number {
    this.#gateId += 1;
    this.publish();
    return this.#gateId;
  }

  /** The actor left: whatever ends later says nothing of it any more. */
  end(): void {
    this.#ended = true;
  }
}
