import { type Actor, actors, type ActorStatus, type Snapshot, type Template } from "@substrate/crds/index.ts";
import { type ErrorCode, SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorReport, ActorState, StorageState } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { isConflict, isNotFound, type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { desiredStatus, differs, observedState } from "./actor-status.ts";
import { type ActorWorld, nodeUnavailableAfterMs, type Standing } from "./actor-world.ts";
import { actorFinalizer, type Assignments } from "./assignments.ts";
import { type AteletLink } from "./atelet-link.ts";
import { type Atelets } from "./atelets.ts";
import { type Briefings } from "./briefings.ts";
import { type Trouble } from "./conditions.ts";
import { type Deletion } from "./deletion.ts";
import { type Detachment } from "./detachment.ts";
import { type EventRecorder } from "./events.ts";
import { type Freshest } from "./freshest.ts";
import { actorUidLabel, snapshotName } from "./generations.ts";
import { type Hold, troubleOf } from "./hold.ts";
import { type KeepRunning } from "./keep-running.ts";
import { LateEvents } from "./late-events.ts";
import { type OperatorMetrics } from "./metrics.ts";
import { hiddenForMs } from "./operation-record.ts";
import { type Operations } from "./operations.ts";
import { isUnstartedFork, sourceTrouble } from "./origins.ts";
import { type Plans } from "./plans.ts";
import { type ReconcileResult } from "./queue.ts";
import { type Residence } from "./residence.ts";
import { SettledStates } from "./settled-states.ts";
import { type EventFacts, statusEvents } from "./status-events.ts";
import { type Waker } from "./wake.ts";

export interface ActorReconcilerOptions {
  client: KubeClient;
  actors: Freshest<Actor>;
  templates: Reflector<Template>;
  snapshots: Reflector<Snapshot>;
  atelets: Atelets;
  assignments: Assignments;
  deletion: Deletion;
  detachment: Detachment;
  plans: Plans;
  residence: Residence;
  waker: Waker;
  operations: Operations;
  hold: Hold;
  briefings: Briefings;
  keepRunning: KeepRunning;
  events: EventRecorder;
  metrics: OperatorMetrics;
  log: Logger;
  /** A Snapshot object may have to be made, changed or removed. */
  enqueueSnapshot: (key: string) => void;
}

/** What one pass found out beside the world that it read. */
interface Findings {
  blocked?: Trouble;
  standing?: Standing | undefined;
  requeueAfterMs?: number;
}

/** One Actor: deletion, hold, re-grant, detach, Snapshot objects, status. */
export class ActorReconciler {
  readonly #options: ActorReconcilerOptions;
  readonly #states = new SettledStates();
  readonly #lateEvents = new LateEvents();

  constructor(options: ActorReconcilerOptions) {
    this.#options = options;
  }

  async reconcile(key: string): Promise<ReconcileResult> {
    const actor = this.#options.actors.get(key);
    if (actor === undefined) return {};
    if (actor.metadata.deletionTimestamp !== undefined) return this.#delete(actor);
    const current = await this.#options.assignments.ensureFinalizer(actor);
    const findings: Findings = {};
    try {
      findings.standing = await this.#standing(current);
      soonest(findings, findings.standing?.recheckAfterMs);
      await this.#converge(current, findings);
    } catch (error) {
      if (isForPeople(error)) findings.blocked = troubleOf(error);
      throw error;
    } finally {
      await this.#writeStatus(this.#options.actors.get(key) ?? current, findings);
    }
    return findings.requeueAfterMs === undefined ? {} : { requeueAfterMs: findings.requeueAfterMs };
  }

  async #standing(actor: Actor): Promise<Standing | undefined> {
    const { atelets, briefings } = this.#options;
    const { uid = "" } = actor.metadata;
    const nodeName = actor.status?.assignment?.nodeName;
    const report = nodeName === undefined ? undefined : atelets.report(nodeName, uid);
    // while the node says nothing, what it says decides
    if (nodeName !== undefined && !atelets.view(nodeName).synced) return undefined;
    return briefings.standing(actor, report);
  }

  async #converge(actor: Actor, findings: Findings): Promise<void> {
    const { atelets, briefings, detachment, hold, keepRunning, residence, waker } = this.#options;
    const { uid = "" } = actor.metadata;
    const nodeName = actor.status?.assignment?.nodeName;
    if (nodeName === undefined) {
      if (isStartable(actor)) soonest(findings, keepRunning.ensure(actor, undefined));
      return;
    }
    const view = atelets.view(nodeName);
    const link = atelets.get(nodeName);
    if (link === undefined || !view.synced) {
      const unavailableInMs = nodeUnavailableAfterMs - view.unreachableMs;
      if (unavailableInMs > 0) soonest(findings, unavailableInMs);
      soonest(findings, view.lostInMs);
      return;
    }
    const report = link.report(uid);
    if (report === undefined) {
      soonest(findings, keepRunning.ensure(actor, undefined));
      if (!waker.active(uid)) await detachment.finish(actor, link);
      return;
    }
    this.#enqueueSnapshots(actor, report);
    // a wake grants and assigns by itself
    if (waker.active(uid)) return;
    if (await this.#regrant(actor, link, report)) return;
    const held = await hold.ensure(actor, link, report);
    if (held.trouble !== undefined) findings.blocked = held.trouble;
    soonest(findings, held.requeueAfterMs);
    if (findings.standing !== undefined) await briefings.update(actor, link, report, findings.standing);
    soonest(findings, keepRunning.ensure(actor, report));
    const leaves = residence.departure(actor)?.elsewhere === true;
    soonest(findings, await detachment.ensure(actor, link, report, leaves));
  }

  /** An actor that runs under a void or unheard grant gets a new one at once; a sleeping one at its next wake. */
  async #regrant(actor: Actor, link: AteletLink, report: ActorReport): Promise<boolean> {
    const { assignments, atelets, metrics, plans } = this.#options;
    const assignment = actor.status?.assignment;
    if (assignment === undefined || isAsleep(report)) return false;
    const stale = assignment.session !== link.lease.session;
    if (!stale && Number(report.grant?.epoch ?? 0n) >= assignment.epoch) return false;
    const plan = await plans.present(actor, report.revision);
    const granted = stale
      ? await assignments.grant(actor, link.lease, atelets.highestEpoch(actor.metadata.uid ?? ""))
      : actor;
    if (stale) metrics.grant("regrant");
    await assignments.assign(granted, link, plan);
    return true;
  }

  #enqueueSnapshots(actor: Actor, report: ActorReport): void {
    const { name, namespace, uid } = actor.metadata;
    const known = this.#options.snapshots.list().filter(({ metadata }) => metadata.labels?.[actorUidLabel] === uid);
    const keys = new Set(known.map(keyOf));
    for (const { generation, storageState } of report.generations) {
      if (storageState !== StorageState.STORAGE_STATE_COMPLETED) continue;
      keys.add(`${namespace ?? ""}/${snapshotName(name, Number(generation))}`);
    }
    for (const key of keys) this.#options.enqueueSnapshot(key);
  }

  async #delete(actor: Actor): Promise<ReconcileResult> {
    this.#lateEvents.forget(actor.metadata.uid ?? "");
    const { blocked, requeueAfterMs } = await this.#options.deletion.run(actor);
    // What somebody else's finalizer keeps must not go on saying that it runs.
    const isKept = actor.metadata.finalizers?.some((name) => name !== actorFinalizer) === true;
    const findings: Findings = blocked === undefined ? {} : { blocked };
    if (blocked !== undefined || isKept) await this.#writeStatus(actor, findings);
    soonest(findings, requeueAfterMs);
    if (findings.requeueAfterMs !== undefined) return { requeueAfterMs: findings.requeueAfterMs };
    this.forget(actor.metadata.uid ?? "");
    return {};
  }

  /** A wake under way ends with a status of its own: what changes meanwhile, and is no trouble, rides on that. */
  #waits(actor: Actor, status: Omit<ActorStatus, "assignment">, findings: Findings): boolean {
    const { uid = "" } = actor.metadata;
    const { waker } = this.#options;
    if (!waker.active(uid) || waker.unplaced(uid) !== undefined || findings.blocked !== undefined) return false;
    const before = actor.status;
    return status.state === before?.state && !differs(status.lastOperation ?? {}, before?.lastOperation);
  }

  /** Drops what is remembered of an actor that is gone. */
  forget(uid: string): void {
    this.#states.forget(uid);
    this.#lateEvents.forget(uid);
    this.#options.operations.forget(uid);
    this.#options.hold.forget(uid);
    this.#options.keepRunning.forget(uid);
    this.#options.briefings.forget(uid);
    this.#options.residence.forget(uid);
  }

  async #writeStatus(actor: Actor, findings: Findings): Promise<void> {
    const { atelets, client, events, metrics, operations, residence, snapshots, templates, waker } = this.#options;
    const { uid = "", name, namespace } = actor.metadata;
    const nodeName = actor.status?.assignment?.nodeName;
    const sourceName = actor.spec.source?.snapshotRef.name ?? "";
    const hints = new Map(actor.status?.snapshots?.map((entry) => [entry.generation, entry.nodeName]));
    const seen: Omit<ActorWorld, "state"> = {
      actor,
      template: templates.get(namespace, actor.spec.templateRef.name),
      source: isUnstartedFork(actor) ? sourceTrouble(actor, snapshots.get(namespace, sourceName)) : undefined,
      node: nodeName === undefined ? undefined : atelets.view(nodeName),
      report: nodeName === undefined ? undefined : atelets.report(nodeName, uid),
      localNode: (generation) => atelets.localNode(uid, generation, hints.get(generation)),
      operations: operations.of(uid),
      departure: residence.departure(actor),
      unplaced: waker.unplaced(uid),
      blocked: findings.blocked,
      standing: findings.standing,
      now: new Date(),
    };
    const settled = this.#states.settle(uid, observedState(seen), actor.status?.state, performance.now());
    soonest(findings, settled.recheckAfterMs);
    const status = desiredStatus({ ...seen, state: settled.state });
    let fresh: EventFacts[] = [];
    if (differs(status, actor.status) && !this.#waits(actor, status, findings)) {
      const applied = { metadata: { name, namespace: namespace ?? "", uid }, status: status as ActorStatus };
      try {
        const written = await client.apply(actors, applied, { subresource: "status", force: true });
        this.#options.actors.remember(written);
      } catch (error) {
        // gone, or another one under its name by now
        if (isNotFound(error) || isConflict(error)) return;
        throw error;
      }
      metrics.statusWrite("Actor");
      fresh = statusEvents(actor.status, status, seen.report?.generations);
    }
    const due = this.#lateEvents.due(uid, fresh, status, performance.now());
    for (const facts of due.events) events.record(actor, facts);
    soonest(findings, due.recheckAfterMs);
    if (status.lastOperation?.endTime !== undefined) operations.shown(uid, status.lastOperation.id);
    soonest(findings, hiddenForMs(seen.operations, seen.now));
    // one finished operation is shown at a time
    if (operations.of(uid).some(({ endUnixMs }) => endUnixMs !== undefined)) soonest(findings, 0);
  }
}

/** Failures that pass by themselves: they are retried and logged, but change no condition. */
const passing: ReadonlySet<ErrorCode> = new Set([
  "MOVED",
  "STALE_SESSION",
  "STALE_TERM",
  "NODE_UNAVAILABLE",
  "NODE_LOST",
  "SHUTTING_DOWN",
  "TIMEOUT",
]);

function isForPeople(error: unknown): boolean {
  return error instanceof SubstrateError && !passing.has(error.code);
}

/** It has been found out what it would be started with. */
function isStartable({ status }: Actor): boolean {
  return status?.state === "ACTOR_STATE_SUSPENDED" || status?.state === "ACTOR_STATE_CRASHED";
}

function isAsleep({ state }: ActorReport): boolean {
  return (
    state === ActorState.ACTOR_STATE_SUSPENDED ||
    state === ActorState.ACTOR_STATE_CRASHED ||
    state === ActorState.ACTOR_STATE_UNSPECIFIED
  );
}

function soonest(findings: Findings, afterMs: number | undefined): void {
  if (afterMs === undefined) return;
  findings.requeueAfterMs = Math.min(afterMs, findings.requeueAfterMs ?? Number.POSITIVE_INFINITY);
}
