import { type ErrorCode, isErrorCode } from "@substrate/lib/errors.ts";

/** Reasons of conditions by kind, beside those made of error codes; docs/reference/reasons.md says what each means. */
export const conditionReasons = {
  Template: [
    "Validated",
    "Validating",
    "NoNode",
    "GoldenTaken",
    "GoldenPending",
    "GoldenFailed",
    "HasSecrets",
    "NameTaken",
  ],
  Actor: [
    "Running",
    "Asleep",
    "Suspended",
    "Crashed",
    "Pending",
    "TemplateMissing",
    "TemplateNotReady",
    "NodeUnavailable",
    "NodeLost",
    "Deleting",
    "DeletionBlocked",
    "NoRoom",
    "NoNode",
    "Assigned",
    "NodeUnfit",
    "NotNeeded",
    "Completed",
    "Failed",
    "Lost",
    "NoSnapshot",
    "CrashLoop",
    "EnvCurrent",
    "EnvChanged",
    "VolumesFit",
    "VolumeOverLimit",
  ],
  Snapshot: ["Completed", "NotStored", "Saving", "GoldenFailed", "Failed", "DeletionBlocked"],
} as const;

export const eventReasons = [
  "TemplateInvalid",
  "GoldenFailed",
  "Crashed",
  "NodeUnavailable",
  "NodeLost",
  "DeletionBlocked",
  "TemplateMissing",
  "SnapshotMissing",
  "SnapshotUnusable",
  "NoRoom",
  "NoNode",
  "PodSecurityForbids",
  "FailedWake",
  "FailedSuspend",
  "FailedTag",
  "SnapshotFailed",
  "SnapshotLost",
  "SnapshotDamaged",
  "SnapshotNotOnDisk",
  "DiskTight",
  "Abandoned",
  "Unmanaged",
  "CrashLoop",
  "UpgradeRefused",
] as const;

export const conditionTypes = [
  "Ready",
  "Scheduled",
  "Durable",
  "Golden",
  "Stalled",
  "EnvOutdated",
  "VolumesFull",
] as const;

/** "IMAGE_UNAVAILABLE" → "ImageUnavailable" */
type OneWord<Code extends string> = Code extends `${infer First}_${infer Rest}`
  ? `${Capitalize<Lowercase<First>>}${OneWord<Rest>}`
  : Capitalize<Lowercase<Code>>;

export type CodeReason = OneWord<ErrorCode>;

export type Reason = (typeof conditionReasons)[keyof typeof conditionReasons][number] | CodeReason;

export type EventReason = (typeof eventReasons)[number];

export type ConditionType = (typeof conditionTypes)[number];

/** "IMAGE_UNAVAILABLE" → "ImageUnavailable"; "Internal" for what is no code of the catalogue. */
export function reasonOf(code: string): CodeReason {
  const known = isErrorCode(code) ? code : "INTERNAL";
  return known
    .toLowerCase()
    .split("_")
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join("") as CodeReason;
}
