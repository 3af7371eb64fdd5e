import { type ActorState, type ActorStatus } from "@substrate/crds/index.ts";
import { OperationResult, StorageState } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type ActorWorld } from "./actor-world.ts";
import { type ConditionFacts, isoSeconds, mergeConditions } from "./conditions.ts";
import { maxListed, newestGeneration, snapshotEntries } from "./generations.ts";
import { publishedOperation } from "./operation-record.ts";
import { isUnstartedFork } from "./origins.ts";
import { envOutdated, volumesFull } from "./program-conditions.ts";
import { ready } from "./ready.ts";
import { type Reason, reasonOf } from "./reasons.ts";
import { isAwake, tieOf } from "./ties.ts";

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

function scheduled(world: ActorWorld): ConditionFacts {
  const { actor, unplaced } = world;
  const nodeName = actor.status?.assignment?.nodeName;
  if (unplaced !== undefined) return { type: "Scheduled", status: "False", ...unplaced };
  const unfit = nodeName === undefined ? undefined : unfitText(world);
  if (nodeName !== undefined && unfit !== undefined) {
    const message = `Assigned to node ${nodeName}, which ${unfit}`;
    return { type: "Scheduled", status: "True", reason: "NodeUnfit", message };
  }
  if (nodeName !== undefined)
    return { type: "Scheduled", status: "True", reason: "Assigned", message: `Assigned to node ${nodeName}` };
  return {
    type: "Scheduled",
    status: "True",
    reason: "NotNeeded",
    message: "Asleep; a node is chosen at the next wake",
  };
}

/** Why its node is none for it any more, and what comes of that. */
function unfitText({ departure, report, state }: ActorWorld): string | undefined {
  if (departure === undefined) return undefined;
  const { elsewhere, why } = departure;
  if (!elsewhere) return `${why}; it stays there, as no other node is open to it`;
  const isAsleep = report === undefined ? state === "ACTOR_STATE_SUSPENDED" : !isAwake(report);
  if (!isAsleep) return `${why}; it stays there while it runs`;
  return `${why}; it leaves when all that was saved of it is in the store`;
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
  const told = world.report?.generations.find(({ generation }) => Number(generation) === newest.generation);
  const because = told === undefined || told.message === "" ? "" : `: ${told.message}`;
  // not yet tried, or being tried, is no trouble
  const pending = told === undefined || told.reason === "" ? "Pending" : reasonOf(told.reason);
  switch (newest.storageState) {
    case "SNAPSHOT_STORAGE_STATE_COMPLETED":
      return facts("True", "Completed", `${what} is in the store${because}`);
    case "SNAPSHOT_STORAGE_STATE_PENDING":
      return facts("False", pending, `${what} is only on the node${because}`);
    case "SNAPSHOT_STORAGE_STATE_FAILED":
      return facts("False", "Failed", `${what} could not be stored${because}`);
    case "SNAPSHOT_STORAGE_STATE_LOST":
      return facts("False", "Lost", `${what} is lost${because}`);
  }
}

/** Of what runs, or would be started if the Template had no other. */
function revisionOf({ actor, report, template }: ActorWorld): string | undefined {
  const before = actor.status?.revision;
  const { revision } = tieOf(actor, report);
  if (revision !== undefined && revision !== "") return revision;
  if (report !== undefined && report.revision !== "") return report.revision;
  const isNew = report === undefined && (actor.status?.generation ?? 0) === 0 && !isUnstartedFork(actor);
  return isNew ? (template?.status?.revision ?? before) : before;
}

/**
 * What was lost stays visible after the next good start: until a newer state is safe, or a person has chosen what to go
 * on from.
 */
function lastingCrash({ actor, operations, report }: ActorWorld): ActorStatus["crash"] {
  const before = actor.status?.crash;
  if (report === undefined) return before;
  const { crash, generations } = report;
  if (crash !== undefined) return { message: crash.message, time: isoSeconds(Number(crash.timeUnixMs)) };
  if (before === undefined) return undefined;
  const crashMs = Date.parse(before.time);
  const isSaved = generations.some(
    ({ createdUnixMs, storageState }) =>
      storageState === StorageState.STORAGE_STATE_COMPLETED && Number(createdUnixMs) > crashMs,
  );
  // the node's word comes before the operation's own end
  const heard = report.lastOperation;
  const isChosen = operations.some(({ choosing, id, result, startUnixMs }) => {
    const ended = heard?.id === id ? heard.result : result;
    return choosing === true && ended === OperationResult.OPERATION_RESULT_SUCCEEDED && startUnixMs > crashMs;
  });
  return isSaved || isChosen ? undefined : before;
}

/** The whole status but `assignment`, which only grants and releases write. */
export function desiredStatus(world: ActorWorld): Omit<ActorStatus, "assignment"> {
  const { actor, report, state } = world;
  const before = actor.status;
  const observedGeneration = actor.metadata.generation ?? 0;
  const generation = newestGeneration(world);
  const revision = revisionOf(world);
  const nodeWord = { known: world.node?.synced ?? true, operation: report?.lastOperation };
  const operation = publishedOperation(world.operations, nodeWord, before?.lastOperation, world.now);
  const crash = lastingCrash(world);
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
      [ready(world), scheduled(world), durable(world), ...envOutdated(world), ...volumesFull(world)],
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
