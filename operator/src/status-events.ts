import { type ActorStatus } from "@substrate/crds/index.ts";
import { type ErrorCode } from "@substrate/lib/errors.ts";
import { type Generation } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { refusalMark } from "./ready.ts";
import { type EventReason, reasonOf } from "./reasons.ts";

export interface EventFacts {
  type: "Normal" | "Warning";
  reason: EventReason;
  message: string;
}

/** Ready reasons of which a person should hear in `kubectl describe`, each once when it begins. */
const notableReasons = [
  "NodeUnavailable",
  "NodeLost",
  "DeletionBlocked",
  "TemplateMissing",
  "SnapshotMissing",
  "SnapshotUnusable",
  "CrashLoop",
] as const;

const failureReasons = { Resume: "FailedWake", Suspend: "FailedSuspend", Tag: "FailedTag" } as const;

/** What spec.state asks for, and what whoever asked at the wrong moment has been told: nothing abnormal. */
const expectedFailures: ReadonlySet<string> = new Set<ErrorCode>(["HELD", "OPERATION_IN_PROGRESS"]);

/** A Template that is deleted just before its actors, or a source made just after them, is nothing abnormal. */
export const lateReasons: ReadonlySet<EventReason> = new Set([
  "TemplateMissing",
  "SnapshotMissing",
  "SnapshotUnusable",
]);

function condition(
  status: Partial<ActorStatus> | undefined,
  type: string,
): { status: string; reason: string; message: string } | undefined {
  return status?.conditions?.find((candidate) => candidate.type === type);
}

/** Why an upgrade is refused, out of Ready's message. */
function refusalIn(message = ""): string | undefined {
  const [, refusal] = message.split(refusalMark);
  return refusal;
}

/**
 * What is abnormal or rare in the step from one written status to the next; each step tells it once.
 * @param generations as the node reports them: they say why one failed or is lost
 */
export function statusEvents(
  before: Partial<ActorStatus> | undefined,
  after: Partial<ActorStatus>,
  generations: readonly Pick<Generation, "generation" | "message">[] = [],
): EventFacts[] {
  const events: EventFacts[] = [];
  const warn = (reason: EventReason, message: string): void => {
    events.push({ type: "Warning", reason, message });
  };
  if (after.crash !== undefined && after.crash.time !== before?.crash?.time) warn("Crashed", after.crash.message);
  const ready = condition(after, "Ready");
  const notable = notableReasons.find((reason) => reason === ready?.reason);
  if (ready?.status === "False" && notable !== undefined && condition(before, "Ready")?.reason !== notable) {
    warn(notable, ready.message);
  }
  const refusal = refusalIn(ready?.message);
  if (refusal !== undefined && refusalIn(condition(before, "Ready")?.message) !== refusal) {
    warn("UpgradeRefused", refusal);
  }
  const scheduled = condition(after, "Scheduled");
  if (scheduled?.status === "False" && condition(before, "Scheduled")?.status !== "False") {
    warn(scheduled.reason === "NoNode" ? "NoNode" : "NoRoom", scheduled.message);
  }
  for (const snapshot of after.snapshots ?? []) {
    const known = before?.snapshots?.find(({ generation }) => generation === snapshot.generation);
    if (known?.storageState === snapshot.storageState) continue;
    const what = `Generation ${snapshot.generation}`;
    const why = generations.find(({ generation }) => Number(generation) === snapshot.generation)?.message ?? "";
    const because = why === "" ? "" : `: ${why}`;
    if (snapshot.storageState === "SNAPSHOT_STORAGE_STATE_FAILED")
      warn("SnapshotFailed", `${what} could not be made or stored${because}`);
    if (snapshot.storageState === "SNAPSHOT_STORAGE_STATE_LOST") warn("SnapshotLost", `${what} is lost${because}`);
  }
  const [newest] = after.snapshots ?? [];
  const durable = condition(after, "Durable");
  const said = generations.find(({ generation }) => Number(generation) === newest?.generation)?.message ?? "";
  if (durable?.status === "True" && said !== "" && durable.message !== condition(before, "Durable")?.message) {
    warn("SnapshotDamaged", durable.message);
  }
  const last = after.lastOperation;
  if (
    last?.result === "Failed" &&
    !expectedFailures.has(last.reason ?? "") &&
    !(before?.lastOperation?.id === last.id && before.lastOperation.result === "Failed")
  ) {
    const why = `${last.reason === undefined ? "" : `${reasonOf(last.reason)}: `}${last.message ?? ""}`;
    warn(failureReasons[last.type], why);
  }
  return events;
}
