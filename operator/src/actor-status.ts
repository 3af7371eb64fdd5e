import { type Actor, type ActorState, type ActorStatus, type Template } from "@substrate/crds/index.ts";
import { type ActorReport } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type ConditionFacts, isoSeconds, mergeConditions } from "./conditions.ts";
import { maxListed, newestGeneration, snapshotEntries } from "./generations.ts";
import { type OperationRecord, publishedOperation } from "./operation-record.ts";
import { isUnstartedFork } from "./origins.ts";
import { type Reason, reasonOf } from "./reasons.ts";

/** How the operator sees the node that an actor is assigned to. */
export interface NodeView {
  nodeName: string;
  /** Connected, and all its reports are known. */
  synced: boolean;
  /** How long it has not been synced; 0 while it is. */
  unreachableMs: number;
}

/** A reason and a text for a person, for a condition that is False. */
export interface Trouble {
  reason: Reason;
  message: string;
}

/** All that an actor's status is made of. */
export interface ActorWorld {
  actor: Actor;
  template: Template | undefined;
  /** Why the Snapshot in spec.source cannot be used, for an actor that has no generation of its own. */
  source: Trouble | undefined;
  /** Of status.assignment.nodeName; undefined when the actor is unassigned. */
  node: NodeView | undefined;
  /** The assigned node's newest word on the actor; undefined while it isn't synced or knows nothing of it. */
  report: ActorReport | undefined;
  /** Which synced node has a generation's files; "unknown" while a node that might isn't synced. */
  localNode: (generation: number) => string | undefined;
  /** The operator's own operations, oldest first. */
  operations: readonly OperationRecord[];
  /** A wake that finds no place. */
  unplaced: Trouble | undefined;
  /** What stands in the way of a deletion or of spec.state. */
  blocked: Trouble | undefined;
  /** The report's state, or the one before it while it is transitional and young. */
  state: ActorState;
  now: Date;
}

/** After this long without a node's reports its actors are said not to be Ready. */
export const nodeUnavailableAfterMs = 15_000;

/** Failures of a resume after which only a person, or another revision, makes the actor answer. */
const lastingFailures = new Set([
  "PROGRAM_EXITED",
  "NOT_READY",
  "RESTORE_FAILED",
  "SNAPSHOT_DAMAGED",
  "IMAGE_UNAVAILABLE",
  "IMAGE_INVALID",
  "STORE_FOREIGN",
]);

/** What the report, or in its absence what is known, says the actor does now. */
export function observedState(world: Omit<ActorWorld, "state">): ActorState {
  const { actor, report, template } = world;
  const before = actor.status?.state;
  if (actor.metadata.deletionTimestamp !== undefined) return "ACTOR_STATE_DELETING";
  if (report !== undefined && report.state !== "ACTOR_STATE_UNSPECIFIED" && report.state !== "UNRECOGNIZED") {
    return report.state;
  }
  if (world.node !== undefined && !world.node.synced && before !== undefined) return before;
  if (world.source !== undefined) return "ACTOR_STATE_PENDING";
  const started = (actor.status?.generation ?? 0) > 0 || before === "ACTOR_STATE_SUSPENDED";
  if (isUnstartedFork(actor) && template !== undefined) return "ACTOR_STATE_SUSPENDED";
  return started || template?.status?.phase === "Ready" ? "ACTOR_STATE_SUSPENDED" : "ACTOR_STATE_PENDING";
}

function templateTrouble(world: ActorWorld): Trouble | undefined {
  const { actor, template } = world;
  const name = actor.spec.templateRef.name;
  if (template === undefined) {
    const message = `Template ${actor.metadata.namespace}/${name} does not exist: create it, or fix spec.templateRef`;
    return { reason: "TemplateMissing", message };
  }
  if (world.source !== undefined) return world.source;
  // it starts with the revision of its source
  if (isUnstartedFork(actor)) return undefined;
  if (template.status?.phase === "Ready") return undefined;
  // it wakes with the revision that its snapshot was made with, whatever becomes of the newest one
  if ((actor.status?.generation ?? 0) > 0 && actor.status?.revision !== undefined) return undefined;
  const cause = template.status?.conditions?.find(({ type }) => type === "Ready")?.message;
  const message = `Template ${actor.metadata.namespace}/${name} is not Ready${cause === undefined ? "" : `: ${cause}`}`;
  return { reason: "TemplateNotReady", message };
}

function ready(world: ActorWorld): ConditionFacts {
  const no = ({ reason, message }: Trouble): ConditionFacts => ({ type: "Ready", status: "False", reason, message });
  const yes = (reason: Reason, message: string): ConditionFacts => ({ type: "Ready", status: "True", reason, message });
  const { actor, node, report, state } = world;
  if (world.blocked !== undefined) return no(world.blocked);
  if (state === "ACTOR_STATE_DELETING") return no({ reason: "Deleting", message: "The actor is being deleted" });
  if (node !== undefined && node.unreachableMs >= nodeUnavailableAfterMs) {
    const message = `Node ${node.nodeName} has not answered for long; the actor stays there until its atelet is back`;
    return no({ reason: "NodeUnavailable", message });
  }
  if (state === "ACTOR_STATE_RUNNING") return yes("Running", "Answers requests");
  if (world.unplaced !== undefined) return no(world.unplaced);
  if (state === "ACTOR_STATE_PENDING") {
    return no(templateTrouble(world) ?? { reason: "Pending", message: "Waits for its Template" });
  }
  const last = report?.lastOperation;
  if (
    last?.type === "OPERATION_TYPE_RESUME" &&
    last.result === "OPERATION_RESULT_FAILED" &&
    lastingFailures.has(last.reason)
  ) {
    return no({ reason: reasonOf(last.reason), message: last.message });
  }
  if (actor.spec.state === "Suspended") return yes("Suspended", "Kept asleep by spec.state: Suspended");
  const trouble = templateTrouble(world);
  if (trouble !== undefined) return no(trouble);
  if (state === "ACTOR_STATE_CRASHED") {
    return yes("Crashed", `The next request starts it from generation ${newestGeneration(world)}`);
  }
  return yes("Asleep", "The next request wakes it");
}

function scheduled(world: ActorWorld): ConditionFacts {
  const { actor, unplaced } = world;
  const nodeName = actor.status?.assignment?.nodeName;
  if (unplaced !== undefined) return { type: "Scheduled", status: "False", ...unplaced };
  if (nodeName !== undefined)
    return { type: "Scheduled", status: "True", reason: "Assigned", message: `Assigned to node ${nodeName}` };
  return {
    type: "Scheduled",
    status: "True",
    reason: "NotNeeded",
    message: "Asleep; a node is chosen at the next wake",
  };
}

function durable(world: ActorWorld): ConditionFacts {
  const newest = snapshotEntries(world)[0];
  const facts = (status: "True" | "False", reason: Reason, message: string): ConditionFacts => ({
    type: "Durable",
    status,
    reason,
    message,
  });
  if (newest === undefined) return facts("False", "NoSnapshot", "Nothing has been saved yet");
  const what = `Generation ${newest.generation}`;
  const why = world.report?.generations.find(({ generation }) => Number(generation) === newest.generation)?.message;
  const because = why === undefined || why === "" ? "" : `: ${why}`;
  switch (newest.storageState) {
    case "SNAPSHOT_STORAGE_STATE_COMPLETED":
      return facts("True", "Completed", `${what} is in the store`);
    case "SNAPSHOT_STORAGE_STATE_PENDING":
      return facts("False", "Pending", `${what} is only on the node${because}`);
    case "SNAPSHOT_STORAGE_STATE_FAILED":
      return facts("False", "Failed", `${what} could not be stored${because}`);
    case "SNAPSHOT_STORAGE_STATE_LOST":
      return facts("False", "Lost", `${what} is lost${because}`);
  }
}

/** The whole status but `assignment`, which only grants and releases write. */
export function desiredStatus(world: ActorWorld): Omit<ActorStatus, "assignment"> {
  const { actor, report, state, template } = world;
  const before = actor.status;
  const observedGeneration = actor.metadata.generation ?? 0;
  const generation = newestGeneration(world);
  const revision =
    (report?.revision === "" ? undefined : report?.revision) ??
    before?.revision ??
    (generation === 0 ? template?.status?.revision : undefined);
  const nodeWord = { known: world.node?.synced ?? true, operation: report?.lastOperation };
  const operation = publishedOperation(world.operations, nodeWord, before?.lastOperation, world.now);
  const crash =
    report === undefined
      ? before?.crash
      : report.crash && { message: report.crash.message, time: isoSeconds(Number(report.crash.timeUnixMs)) };
  const activityMs = Number(report?.lastActivityUnixMs ?? 0n);
  const lastActivityTime = activityMs > 0 ? isoSeconds(activityMs) : before?.lastActivityTime;
  return {
    observedGeneration,
    state,
    generation,
    snapshots: snapshotEntries(world).slice(0, maxListed),
    ...(revision === undefined ? {} : { revision }),
    ...(operation === undefined ? {} : { lastOperation: operation }),
    ...(crash === undefined ? {} : { crash }),
    ...(lastActivityTime === undefined ? {} : { lastActivityTime }),
    conditions: mergeConditions(
      before?.conditions,
      [ready(world), scheduled(world), durable(world)],
      observedGeneration,
      world.now,
    ),
  };
}

/** Whether a write is needed. lastActivityTime alone is none: it rides on other writes. */
export function differs(wanted: object, current: object | undefined): boolean {
  const relevant = (status: object | undefined): string =>
    JSON.stringify(status ?? {}, (key, value: unknown) => {
      if (key === "assignment" || key === "lastActivityTime") return undefined;
      if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
      return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
    });
  return relevant(wanted) !== relevant(current);
}
