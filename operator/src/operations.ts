import { randomUUID } from "node:crypto";
import { type Actor, actors } from "@substrate/crds/index.ts";
import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { SuspendMode } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import {
  type ActorReport,
  ActorState,
  OperationResult,
  OperationType,
  StorageState,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { parseDurationMs } from "@substrate/lib/resources.ts";
import { type Template } from "@substrate/crds/index.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Atelets } from "./atelets.ts";
import { type OperatorMetrics } from "./metrics.ts";
import { type OperationRecord } from "./operation-record.ts";
import { type Waker } from "./wake.ts";

export interface SuspendOptions {
  mode: "Async" | "Sync";
  /** Cut requests that are open after the drain timeout. */
  force: boolean;
}

export interface OperationsOptions {
  client: KubeClient;
  templates: Reflector<Template>;
  atelets: Atelets;
  waker: Waker;
  metrics: OperatorMetrics;
  log: Logger;
  /** The actor's status has something new to show. */
  onChange: (key: string) => void;
}

/** Beside the drain: gate, checkpoint of a large actor on a slow disk, teardown. */
const checkpointMarginMs = 120_000;
/** An upload of a sync suspend; the store may be slow but not silent for longer. */
const uploadMarginMs = 600_000;
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
    return this.#start(actor, OperationType.OPERATION_TYPE_SUSPEND, (id) => this.#suspend(actor, options, id));
  }

  resume(actor: Actor): OperationRecord {
    const uid = actor.metadata.uid ?? "";
    return this.#start(actor, OperationType.OPERATION_TYPE_RESUME, async (id) => {
      await this.#options.waker.wake(uid, keyOf(actor), id);
    });
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

  #start(actor: Actor, type: OperationType, run: (id: string) => Promise<void>): OperationRecord {
    const uid = actor.metadata.uid ?? "";
    const record: OperationRecord = {
      id: randomUUID(),
      type,
      result: OperationResult.OPERATION_RESULT_RUNNING,
      reason: "",
      message: "",
      startUnixMs: Date.now(),
      endUnixMs: undefined,
    };
    this.#records.set(uid, [...this.of(uid).slice(1 - keptPerActor), record]);
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

  async #suspend(known: Actor, options: SuspendOptions, operationId: string): Promise<void> {
    const { client, atelets, waker } = this.#options;
    const key = keyOf(known);
    const { name, namespace, uid = "" } = known.metadata;
    const actor = await client.get(actors, name, namespace);
    if (actor?.metadata.uid !== uid) throw new SubstrateError("UNKNOWN_ACTOR", `Actor ${key} does not exist any more`);
    const assignment = actor.status?.assignment;
    // nobody holds it: it sleeps, and a node only lets go of what is in the store
    if (assignment?.nodeName === undefined) {
      if (waker.active(uid)) throw inProgress(key);
      return;
    }
    const link = atelets.require(assignment.nodeName);
    if (!link.view().synced) {
      const message = `Actor ${key}: node ${assignment.nodeName} does not answer; nothing was suspended`;
      throw new SubstrateError("NODE_UNAVAILABLE", message, { retryAfterMs: 5_000 });
    }
    const report = link.report(uid);
    const target = suspendTarget(key, report, options.mode);
    if (target === undefined) {
      if (waker.active(uid)) throw inProgress(key);
      return;
    }
    const template = this.#options.templates.get(namespace, actor.spec.templateRef.name);
    const drainMs = parseDurationMs(template?.spec.drainTimeout ?? "10s");
    await link.call(
      (client) => client.suspend.bind(client),
      {
        actorUid: uid,
        epoch: BigInt(assignment.epoch),
        targetGeneration: BigInt(target),
        mode: options.mode === "Sync" ? SuspendMode.SUSPEND_MODE_SYNC : SuspendMode.SUSPEND_MODE_ASYNC,
        force: options.force,
        operationId,
      },
      { deadlineMs: drainMs + checkpointMarginMs + (options.mode === "Sync" ? uploadMarginMs : 0) },
    );
  }
}

function inProgress(key: string): SubstrateError {
  const message = `Actor ${key}: another operation is in progress for this actor (a wake); try again when it is done`;
  return new SubstrateError("OPERATION_IN_PROGRESS", message, { retryAfterMs: 1_000 });
}

/**
 * The generation that a suspend is to make, or to wait for; undefined when the actor sleeps as it was asked to.
 * Throws PROGRAM_EXITED for a crashed actor, which has nothing to save, and CHECKPOINT_FAILED for a sync suspend of
 * one whose newest generation can never be stored.
 */
export function suspendTarget(
  key: string,
  report: ActorReport | undefined,
  mode: "Async" | "Sync",
): number | undefined {
  const newest = report?.generations[0];
  const generation = Number(newest?.generation ?? 0n);
  switch (report?.state) {
    case ActorState.ACTOR_STATE_RUNNING:
    case ActorState.ACTOR_STATE_RESUMING:
    case ActorState.ACTOR_STATE_SUSPENDING:
      return generation + 1;
    case ActorState.ACTOR_STATE_CRASHED: {
      const why = report.crash?.message ?? "its program ended";
      throw new SubstrateError(
        "PROGRAM_EXITED",
        `Actor ${key} has crashed (${why}): nothing to suspend; resume it first`,
      );
    }
    case ActorState.ACTOR_STATE_DELETING:
      throw new SubstrateError("UNKNOWN_ACTOR", `Actor ${key} is being deleted`);
    case ActorState.ACTOR_STATE_SUSPENDED:
    case ActorState.ACTOR_STATE_UNSPECIFIED:
    case ActorState.UNRECOGNIZED:
    case undefined:
      break;
  }
  if (mode === "Async" || newest === undefined || newest.storageState === StorageState.STORAGE_STATE_COMPLETED) {
    return undefined;
  }
  if (newest.storageState === StorageState.STORAGE_STATE_PENDING) return generation;
  const message = `Actor ${key}: generation ${generation} cannot be stored: ${newest.message}`;
  throw new SubstrateError("CHECKPOINT_FAILED", message);
}
