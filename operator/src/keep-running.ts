import { type Actor } from "@substrate/crds/index.ts";
import { type ActorReport, OperationResult } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type OperationRecord } from "./operation-record.ts";
import { type Operations } from "./operations.ts";
import { isAwake, isDamaged } from "./ties.ts";

const firstRetryMs = 1_000;
const lastRetryMs = 60_000;
/** A life that lasts longer is no sign of trouble. */
const longLifeMs = 60_000;

interface Starts {
  last: OperationRecord;
  /** In a row that failed, or whose life was short. */
  failures: number;
  retryAtMs: number;
}

/** What spec.state Running asks: an actor that doesn't run is started, more and more slowly while that doesn't last. */
export class KeepRunning {
  readonly #operations: Pick<Operations, "resume">;
  readonly #starts = new Map<string, Starts>();
  readonly #now: () => number;

  /** @param now a monotonic clock */
  constructor(operations: Pick<Operations, "resume">, now: () => number = () => performance.now()) {
    this.#operations = operations;
    this.#now = now;
  }

  /** @returns when to look again */
  ensure(actor: Actor, report: ActorReport | undefined): number | undefined {
    const { uid = "" } = actor.metadata;
    if (actor.spec.state !== "Running") {
      this.#starts.delete(uid);
      return undefined;
    }
    if (report !== undefined && isAwake(report)) return undefined;
    // it would be refused: a person must choose what to start from
    if (report?.crashLoop !== undefined || isDamaged(report)) return undefined;
    const before = this.#starts.get(uid);
    if (before?.last.endUnixMs === undefined && before !== undefined) return undefined;
    const nowMs = this.#now();
    const starts = before === undefined ? undefined : this.#rested(before, nowMs);
    if (starts !== undefined && starts.retryAtMs > nowMs) {
      this.#starts.set(uid, starts);
      return starts.retryAtMs - nowMs;
    }
    const last = this.#operations.resume(actor);
    this.#starts.set(uid, { last, failures: starts?.failures ?? 0, retryAtMs: 0 });
    return undefined;
  }

  forget(uid: string): void {
    this.#starts.delete(uid);
  }

  /** When the next start after this one is due, fixed when its end is first seen. */
  #rested(starts: Starts, nowMs: number): Starts {
    if (starts.retryAtMs > 0) return starts;
    const { last } = starts;
    const isFailed = last.result === OperationResult.OPERATION_RESULT_FAILED;
    const livedMs = Date.now() - (last.endUnixMs ?? 0);
    const failures = isFailed || livedMs < longLifeMs ? starts.failures + 1 : 0;
    const delayMs = failures === 0 ? 0 : Math.min(lastRetryMs, firstRetryMs * 2 ** Math.min(failures - 1, 10));
    return { last, failures, retryAtMs: nowMs + delayMs };
  }
}
