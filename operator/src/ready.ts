import { type ActorWorld, nodeUnavailableAfterMs } from "./actor-world.ts";
import { type ConditionFacts, type Trouble } from "./conditions.ts";
import { newestGeneration } from "./generations.ts";
import { isUnstartedFork } from "./origins.ts";
import { templateMissingFix } from "./programs.ts";
import { type Reason, reasonOf } from "./reasons.ts";

/** Failures of a resume after which only a person, or another revision, makes the actor answer. */
const lastingFailures = [
  "PROGRAM_EXITED",
  "NOT_READY",
  "RESTORE_FAILED",
  "SNAPSHOT_DAMAGED",
  "IMAGE_UNAVAILABLE",
  "IMAGE_INVALID",
  "STORE_FOREIGN",
] as const;
const lastingCodes: ReadonlySet<string> = new Set(lastingFailures);
const lastingReasons: ReadonlySet<string> = new Set(lastingFailures.map(reasonOf));

function templateTrouble(world: ActorWorld): Trouble | undefined {
  const { actor, template } = world;
  const name = actor.spec.templateRef.name;
  if (template === undefined) {
    const message = `Template ${actor.metadata.namespace}/${name} does not exist: ${templateMissingFix}`;
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

/** In Ready's message, before why the actor doesn't take its Template's newest revision. */
export const refusalMark = ". It stays on its revision: ";

/** Whether it answers, or the next request makes it answer. */
export function ready(world: ActorWorld): ConditionFacts {
  const no = ({ reason, message }: Trouble): ConditionFacts => ({ type: "Ready", status: "False", reason, message });
  const yes = (reason: Reason, message: string): ConditionFacts => ({ type: "Ready", status: "True", reason, message });
  const { actor, node, report, state } = world;
  if (world.blocked !== undefined) return no(world.blocked);
  if (state === "ACTOR_STATE_DELETING") return no({ reason: "Deleting", message: "The actor is being deleted" });
  if (node?.lost !== undefined) return no(lost(world, node.lost));
  if (node !== undefined && node.unreachableMs >= nodeUnavailableAfterMs) {
    const before = shown(actor.status);
    // a new leader, or one that was cut off, counts anew: that makes no second loss of it
    if (before?.reason === "NodeLost") return before;
    const message = `Node ${node.nodeName} has not answered for long; the actor stays there until its atelet is back`;
    return no({ reason: "NodeUnavailable", message });
  }
  const kept = unheard(world);
  if (kept !== undefined) return kept;
  if (state === "ACTOR_STATE_RUNNING") return yes("Running", `Answers requests${aboutUpgrade(world)}`);
  if (world.unplaced !== undefined) return no(world.unplaced);
  if (state === "ACTOR_STATE_PENDING") {
    return no(templateTrouble(world) ?? { reason: "Pending", message: "Waits for its Template" });
  }
  const { crashLoop, damage = "" } = report ?? {};
  if (crashLoop !== undefined) return no({ reason: "CrashLoop", message: crashLoop.message });
  if (damage !== "") return no({ reason: "SnapshotDamaged", message: damage });
  if (world.standing?.envTrouble !== undefined) return no(world.standing.envTrouble);
  const failure = failedStart(world);
  if (failure !== undefined) return failure;
  if (actor.spec.state === "Suspended") return yes("Suspended", "Kept asleep by spec.state: Suspended");
  const trouble = templateTrouble(world);
  if (trouble !== undefined) return no(trouble);
  if (state === "ACTOR_STATE_CRASHED") {
    return yes("Crashed", `The next request starts it ${nextSource(world)}${aboutUpgrade(world)}`);
  }
  return yes("Asleep", `The next request wakes it${aboutUpgrade(world)}`);
}

/** Nothing can be said of it, and nothing be done without its node. */
function lost(world: ActorWorld, why: string): Trouble {
  const { actor, state } = world;
  const [newest] = actor.status?.snapshots ?? [];
  const what = newest === undefined ? "What it has" : `Generation ${newest.generation}`;
  const isStored = newest?.storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED";
  const saved = isStored ? `${what} is in the store` : `${what} is only there`;
  const isRunning = state === "ACTOR_STATE_RUNNING" || state === "ACTOR_STATE_SUSPENDING";
  const since = isRunning ? ", and what it did since it woke is only in that node's memory" : "";
  const message = `Its node is lost: it waits for ${why}. ${saved}${since}. Nothing moves by itself: bring the node back, and it goes on there`;
  return { reason: "NodeLost", message };
}

/** While its node says nothing, what was known stands: an atelet that is restarted changes nothing. */
function unheard({ actor, node, report }: ActorWorld): ConditionFacts | undefined {
  if (node?.synced !== false || report !== undefined) return undefined;
  return shown(actor.status);
}

function shown(status: ActorWorld["actor"]["status"]): ConditionFacts | undefined {
  const before = status?.conditions?.find(({ type }) => type === "Ready");
  if (before === undefined) return undefined;
  const { message, reason, status: value } = before;
  return { type: "Ready", status: value, reason: reason as Reason, message };
}

/**
 * That it could not be started, until it was, or something else was tried: a suspend, which finds it asleep, hides
 * nothing, nor does its leaving the node that tried.
 */
function failedStart(world: ActorWorld): ConditionFacts | undefined {
  const { actor, report } = world;
  const last = report?.lastOperation;
  if (last?.type === "OPERATION_TYPE_RESUME") {
    if (last.result !== "OPERATION_RESULT_FAILED" || !lastingCodes.has(last.reason)) return undefined;
    return {
      type: "Ready",
      status: "False",
      reason: reasonOf(last.reason),
      message: `${last.message}${aboutUpgrade(world)}`,
    };
  }
  const before = shown(actor.status);
  const isFailure = before?.status === "False" && lastingReasons.has(before.reason);
  // it has run meanwhile, and was saved
  const isOver = newestGeneration(world) !== (actor.status?.generation ?? 0);
  return isFailure && !isOver ? before : undefined;
}

function nextSource(world: ActorWorld): string {
  const { report } = world;
  if (report === undefined) return `from generation ${newestGeneration(world)}`;
  // an atelet of an earlier version doesn't say it
  return report.nextStart === "" ? "again" : report.nextStart;
}

function aboutUpgrade({ actor, standing, state }: ActorWorld): string {
  if (standing?.upgradeRefused !== undefined) return `${refusalMark}${standing.upgradeRefused}`;
  if (standing?.upgradeTo !== undefined) return `. Its next start brings revision ${standing.upgradeTo}`;
  const { upgradeWaits: waits } = standing ?? {};
  if (waits === undefined) return "";
  const command = `kubectl ate resume ${actor.metadata.name} --boot`;
  const person = `${state === "ACTOR_STATE_RUNNING" ? "suspend it, then " : ""}"${command}" takes it, without its memory`;
  const how = waits.byItself ? "its next start after a suspend brings it" : person;
  return `. Revision ${waits.revision} of its Template waits: ${how}`;
}
