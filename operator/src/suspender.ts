import { setTimeout as sleep } from "node:timers/promises";
import { type Actor, actors, type Template } from "@substrate/crds/index.ts";
import { type ErrorCode, SubstrateError } from "@substrate/lib/errors.ts";
import { SuspendMode } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { type ActorReport, ActorState, Fidelity, StorageState } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { parseDurationMs } from "@substrate/lib/resources.ts";
import { type AteletLink } from "./atelet-link.ts";
import { type Atelets } from "./atelets.ts";
import { wireFidelity } from "./program.ts";
import { type Waker } from "./wake.ts";

type Mode = "Async" | "Sync";

export interface SuspendOptions {
  /** Default: the Template's durability. */
  mode?: Mode;
  /** Cut requests that are open after the drain timeout. */
  force: boolean;
  /** Default: the Template's onSuspend. */
  fidelity?: SnapshotFidelity;
  /** The actor was read from the API server for this very suspend; else it is read once more. */
  justRead?: boolean;
}

type SnapshotFidelity = keyof typeof wireFidelity;

export interface SuspenderOptions {
  client: KubeClient;
  templates: Reflector<Template>;
  atelets: Atelets;
  waker: Waker;
  log: Logger;
}

/** Beside the drain: gate, checkpoint of a large actor on a slow disk, teardown. */
const checkpointMarginMs = 120_000;
/** An upload of a sync suspend; the store may be slow but not silent for longer. */
const uploadMarginMs = 600_000;
/** How long a node's atelet may be away while it is restarted, and its reports behind its answers. */
const restartMs = 15_000;
const lookMs = 25;
/** An atelet that ends in the middle of a call is asked again when it is back, so often at most. */
const maxOutages = 10;
const outagePauseMs = 250;
const outageCodes: ReadonlySet<ErrorCode> = new Set(["NODE_UNAVAILABLE", "SHUTTING_DOWN"]);

/** One suspend's memory between its tries. */
interface SuspendAttempt extends SuspendOptions {
  mode: Mode;
  operationId: string;
  /** The generation that it is to make, or to wait for; the same at each try. */
  target: number | undefined;
  /** Monotonic clock. */
  deadlineMs: number;
}

/** Puts actors to sleep: finds the node and the generation, and sees it through a restart of the node's atelet. */
export class Suspender {
  readonly #options: SuspenderOptions;

  constructor(options: SuspenderOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the node's report, from which the status is made, has the generation (in the store, for a sync
   * suspend). Throws SubstrateError: UNKNOWN_ACTOR, OPERATION_IN_PROGRESS, NODE_UNAVAILABLE after 15 s without its
   * atelet, TIMEOUT, what suspendTarget throws, or what the node's suspend failed with.
   */
  async run(known: Actor, options: SuspendOptions, operationId: string): Promise<void> {
    const template = this.#options.templates.get(known.metadata.namespace, known.spec.templateRef.name);
    const drainMs = parseDurationMs(template?.spec.drainTimeout ?? "10s");
    const mode = options.mode ?? template?.spec.snapshots.durability ?? "Async";
    const uploadMs = mode === "Sync" ? uploadMarginMs : 0;
    const attempt: SuspendAttempt = {
      ...options,
      mode,
      operationId,
      target: undefined,
      deadlineMs: performance.now() + drainMs + checkpointMarginMs + uploadMs,
    };
    for (let outages = 0; ; outages += 1) {
      const current = outages === 0 && options.justRead === true ? known : await this.#read(known);
      const outage = await this.#suspendOnce(current, attempt);
      if (outage === undefined) return;
      if (outages === maxOutages || performance.now() >= attempt.deadlineMs) throw outage;
      this.#options.log.info("suspend is tried again", { actor: keyOf(known), operationId, outages, error: outage });
      await sleep(outagePauseMs);
    }
  }

  async #read(known: Actor): Promise<Actor> {
    const { name, namespace, uid } = known.metadata;
    const actor = await this.#options.client.get(actors, name, namespace);
    if (actor !== undefined && actor.metadata.uid === uid) return actor;
    throw new SubstrateError("UNKNOWN_ACTOR", `Actor ${keyOf(known)} does not exist any more`);
  }

  /** @returns an error that passes when the node's atelet is back; undefined when all is done. */
  async #suspendOnce(actor: Actor, attempt: SuspendAttempt): Promise<SubstrateError | undefined> {
    const { waker } = this.#options;
    const key = keyOf(actor);
    const { uid = "" } = actor.metadata;
    const assignment = actor.status?.assignment;
    // nobody holds it: it sleeps, and a node only lets go of what is in the store
    if (actor.metadata.deletionTimestamp !== undefined) throw beingDeleted(key);
    if (assignment?.nodeName === undefined) {
      if (waker.active(uid)) throw inProgress(key);
      return undefined;
    }
    const link = await this.#connected(key, assignment.nodeName);
    const report = link.report(uid);
    const made = Number(report?.generations[0]?.generation ?? 0n);
    // what an earlier try has made stays the target, though the actor may have been woken since
    const wasMade = attempt.target !== undefined && made >= attempt.target;
    if (wasMade && attempt.mode === "Async") return undefined;
    if (!wasMade) attempt.target = suspendTarget(key, report, attempt.mode);
    const { target } = attempt;
    if (target === undefined) {
      if (waker.active(uid)) throw inProgress(key);
      return undefined;
    }
    const request = {
      actorUid: uid,
      epoch: BigInt(assignment.epoch),
      targetGeneration: BigInt(target),
      mode: attempt.mode === "Sync" ? SuspendMode.SUSPEND_MODE_SYNC : SuspendMode.SUSPEND_MODE_ASYNC,
      force: attempt.force,
      operationId: attempt.operationId,
      fidelity: attempt.fidelity === undefined ? Fidelity.FIDELITY_UNSPECIFIED : wireFidelity[attempt.fidelity],
    };
    try {
      const deadlineMs = Math.max(1, attempt.deadlineMs - performance.now());
      const { generation } = await link.call((client) => client.suspend.bind(client), request, { deadlineMs });
      if (generation !== undefined) {
        await this.#reported(key, uid, assignment.nodeName, attempt.mode, generation.generation);
      }
      return undefined;
    } catch (error) {
      if (error instanceof SubstrateError && outageCodes.has(error.code)) return error;
      throw error;
    }
  }

  /** An atelet that is only being restarted is waited for. Throws NODE_UNAVAILABLE when it doesn't come back. */
  async #connected(key: string, nodeName: string): Promise<AteletLink> {
    const { atelets } = this.#options;
    const untilMs = performance.now() + restartMs;
    for (;;) {
      const link = atelets.get(nodeName);
      if (link?.view().synced === true) return link;
      if (performance.now() >= untilMs) {
        const message = `Actor ${key}: node ${nodeName} has not answered for ${restartMs / 1_000} s; nothing was suspended`;
        throw new SubstrateError("NODE_UNAVAILABLE", message, { retryAfterMs: 5_000 });
      }
      await sleep(lookMs);
    }
  }

  /**
   * The answer to a call may overtake the node's report: without the wait a status could say Succeeded beside a
   * generation that is PENDING.
   */
  async #reported(key: string, uid: string, nodeName: string, mode: Mode, made: bigint): Promise<void> {
    const untilMs = performance.now() + restartMs;
    for (;;) {
      const link = this.#options.atelets.get(nodeName);
      const report = link?.report(uid);
      // let go meanwhile, which it is only when all is in the store and in the objects
      if (link?.view().synced === true && report === undefined) return;
      const told = report?.generations.filter(({ generation }) => generation >= made) ?? [];
      const isStored = told.some(({ storageState }) => storageState === StorageState.STORAGE_STATE_COMPLETED);
      if (mode === "Sync" ? isStored : told.length > 0) return;
      if (performance.now() >= untilMs) {
        const what = `generation ${made} is saved, but node ${nodeName} has not reported it`;
        throw new SubstrateError("TIMEOUT", `Actor ${key}: ${what} within ${restartMs / 1_000} s: ask again`);
      }
      await this.#options.atelets.nextChange(nodeName, untilMs - performance.now());
    }
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
export function suspendTarget(key: string, report: ActorReport | undefined, mode: Mode): number | undefined {
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
      throw beingDeleted(key);
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

function beingDeleted(key: string): SubstrateError {
  return new SubstrateError("UNKNOWN_ACTOR", `Actor ${key} is being deleted`);
}
