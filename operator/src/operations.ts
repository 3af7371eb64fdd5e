import { randomUUID } from "node:crypto";
import { type Actor } from "@substrate/crds/index.ts";
import { asSubstrateError } from "@substrate/lib/errors.ts";
import { OperationResult, OperationType } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type Choice, newest } from "./choices.ts";
import { type OperatorMetrics } from "./metrics.ts";
import { type OperationRecord } from "./operation-record.ts";
import { type SuspendOptions, type Suspender } from "./suspender.ts";
import { type Waker } from "./wake.ts";

export interface OperationsOptions {
  suspender: Suspender;
  waker: Waker;
  metrics: OperatorMetrics;
  log: Logger;
  /** The actor's status has something new to show. */
  onChange: (key: string) => void;
}

/** Finished operations that nobody could write into the status yet; older ones give way. */
const keptPerActor = 16;

/**
 * Suspends and resumes asked by people or by spec.state. Each starts at once, runs in the background and leaves its
 * result for status.lastOperation, also when it failed before any node was reached.
 */
export class Operations {
  readonly #options: OperationsOptions;
  readonly #records = new Map<string, OperationRecord[]>();

  constructor(options: OperationsOptions) {
    this.#options = options;
  }

  /** Oldest first. */
  of(uid: string): readonly OperationRecord[] {
    return this.#records.get(uid) ?? [];
  }

  suspend(actor: Actor, options: SuspendOptions): OperationRecord {
    return this.#start(actor, OperationType.OPERATION_TYPE_SUSPEND, (id) =>
      this.#options.suspender.run(actor, options, id),
    );
  }

  resume(actor: Actor, choice: Choice = newest): OperationRecord {
    const uid = actor.metadata.uid ?? "";
    const run = async (id: string): Promise<void> => {
      await this.#options.waker.wake(uid, keyOf(actor), id, choice);
    };
    return this.#start(actor, OperationType.OPERATION_TYPE_RESUME, run, choice.kind !== "newest");
  }

  /** The status shows this operation's end: nothing more need be kept of it. */
  shown(uid: string, operationId: string): void {
    const rest = this.of(uid).filter(({ id, endUnixMs }) => id !== operationId || endUnixMs === undefined);
    if (rest.length === 0) this.#records.delete(uid);
    else this.#records.set(uid, rest);
  }

  /** The actor is gone. */
  forget(uid: string): void {
    this.#records.delete(uid);
  }

  #start(actor: Actor, type: OperationType, run: (id: string) => Promise<void>, choosing = false): OperationRecord {
    const uid = actor.metadata.uid ?? "";
    const record: OperationRecord = {
      id: randomUUID(),
      type,
      result: OperationResult.OPERATION_RESULT_RUNNING,
      reason: "",
      message: "",
      startUnixMs: Date.now(),
      endUnixMs: undefined,
      choosing,
    };
    this.#records.set(uid, [...this.of(uid).slice(1 - keptPerActor), record]);
    // that it runs is shown when it lasts, whether or not its node hears of it
    this.#options.onChange(keyOf(actor));
    void this.#finish(actor, record, run(record.id));
    return record;
  }

  async #finish(actor: Actor, record: OperationRecord, running: Promise<void>): Promise<void> {
    const key = keyOf(actor);
    const { log, metrics, onChange } = this.#options;
    const type = record.type === OperationType.OPERATION_TYPE_SUSPEND ? "suspend" : "resume";
    let reason = "";
    try {
      await running;
      record.result = OperationResult.OPERATION_RESULT_SUCCEEDED;
    } catch (error) {
      const failure = asSubstrateError(error);
      reason = failure.code;
      record.result = OperationResult.OPERATION_RESULT_FAILED;
      record.message = failure.message;
      if (failure.code === "INTERNAL") log.error("operation failed unexpectedly", { actor: key, error });
    }
    record.reason = reason;
    record.endUnixMs = Date.now();
    metrics.operation(type, reason === "" ? "ok" : reason);
    log.info("operation", {
      actor: key,
      operationId: record.id,
      type,
      result: record.result,
      reason,
      message: record.message,
      totalMs: record.endUnixMs - record.startUnixMs,
    });
    onChange(key);
  }
}
