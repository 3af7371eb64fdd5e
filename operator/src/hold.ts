import { type Actor } from "@substrate/crds/index.ts";
import { asSubstrateError } from "@substrate/lib/errors.ts";
import {
  type ActorReport,
  ActorState,
  OperationResult,
  OperationType,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type Trouble } from "./conditions.ts";
import { type AteletLink } from "./atelet-link.ts";
import { type OperationRecord } from "./operation-record.ts";
import { type Operations } from "./operations.ts";
import { reasonOf } from "./reasons.ts";

const holdDeadlineMs = 10_000;
const firstRetryMs = 2_000;
const lastRetryMs = 60_000;

export interface HoldResult {
  /** Why the actor doesn't sleep yet. */
  trouble?: Trouble;
  requeueAfterMs?: number;
}

/** What spec.state asks of the node: the lock is set or taken off, and a running actor goes to sleep under it. */
export class Hold {
  readonly #operations: Operations;
  readonly #failed = new Map<string, { count: number; retryAtMs: number; trouble: Trouble }>();
  readonly #started = new Map<string, OperationRecord>();

  constructor(operations: Operations) {
    this.#operations = operations;
  }

  /** Throws SubstrateError when the node refuses the lock. */
  async ensure(actor: Actor, link: AteletLink, report: ActorReport): Promise<HoldResult> {
    const uid = actor.metadata.uid ?? "";
    const held = actor.spec.state === "Suspended";
    if (report.held !== held) {
      await link.call(
        (client) => client.setHold.bind(client),
        { actorUid: uid, epoch: BigInt(actor.status?.assignment?.epoch ?? 0), held },
        { deadlineMs: holdDeadlineMs },
      );
    }
    if (!held || report.state !== ActorState.ACTOR_STATE_RUNNING) {
      this.forget(uid);
      return {};
    }
    return this.#sleep(actor, uid);
  }

  forget(uid: string): void {
    this.#failed.delete(uid);
    this.#started.delete(uid);
  }

  #sleep(actor: Actor, uid: string): HoldResult {
    const suspends = this.#operations.of(uid).filter(({ type }) => type === OperationType.OPERATION_TYPE_SUSPEND);
    if (suspends.some(({ endUnixMs }) => endUnixMs === undefined)) return {};
    this.#noteFailure(uid);
    const failed = this.#failed.get(uid);
    const waitMs = (failed?.retryAtMs ?? 0) - performance.now();
    if (failed !== undefined && waitMs > 0) return { trouble: failed.trouble, requeueAfterMs: waitMs };
    this.#started.set(uid, this.#operations.suspend(actor, { mode: "Async", force: false }));
    return failed === undefined ? {} : { trouble: failed.trouble };
  }

  #noteFailure(uid: string): void {
    const started = this.#started.get(uid);
    if (started?.result !== OperationResult.OPERATION_RESULT_FAILED) return;
    this.#started.delete(uid);
    const count = (this.#failed.get(uid)?.count ?? 0) + 1;
    const delayMs = Math.min(lastRetryMs, firstRetryMs * 2 ** Math.min(count - 1, 10));
    const message = `spec.state is Suspended, but the actor could not be suspended yet: ${started.message}`;
    const trouble = { reason: reasonOf(started.reason), message };
    this.#failed.set(uid, { count, retryAtMs: performance.now() + delayMs, trouble });
  }
}

/** A trouble made of whatever was thrown. */
export function troubleOf(error: unknown): Trouble {
  const ours = asSubstrateError(error);
  return { reason: reasonOf(ours.code), message: ours.message };
}
