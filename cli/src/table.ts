import type { Actor, SnapshotEntry } from "@substrate/crds/actor.ts";
import { formatBytes, formatDurationMs } from "@substrate/lib/resources.ts";
import { columns } from "./columns.ts";
import { shortState } from "./states.ts";

export interface TableOptions {
  wide: boolean;
  /** All namespaces: their names come first. */
  namespaces: boolean;
  nowMs: number;
}

/** Actors with their newest snapshots, one line each, in columns for people. */
export function actorTable(actors: readonly Actor[], { wide, namespaces, nowMs }: TableOptions): string {
  const header = [
    ...(namespaces ? ["NAMESPACE"] : []),
    ...["NAME", "STATE", "NODE", "TEMPLATE", "SNAPSHOT", "STORAGE", "READY", "AGE"],
    ...(wide ? ["SIZE", "EPOCH", "SNAPSHOTS", "LAST OPERATION", "MESSAGE"] : []),
  ];
  const rows = actors.map((actor) => {
    const { metadata, spec, status } = actor;
    const newest = status?.snapshots?.[0];
    return [
      ...(namespaces ? [metadata.namespace ?? ""] : []),
      metadata.name,
      shortState(status?.state) + (spec.state === "Suspended" ? " (held)" : ""),
      nodeText(actor),
      spec.templateRef.name,
      newest?.name ?? "-",
      shortState(newest?.storageState),
      status?.conditions?.find((condition) => condition.type === "Ready")?.status ?? "Unknown",
      age(metadata.creationTimestamp, nowMs),
      ...(wide ? wideColumns(actor) : []),
    ];
  });
  return columns([header, ...rows]);
}

function nodeText({ status }: Actor): string {
  const { nodeName } = status?.assignment ?? {};
  const isLost = status?.conditions?.some(({ type, reason }) => type === "Ready" && reason === "NodeLost") === true;
  return nodeName === undefined ? "-" : `${nodeName}${isLost ? " (lost)" : ""}`;
}

function wideColumns({ status }: Actor): string[] {
  const [newest, ...older] = status?.snapshots ?? [];
  const last = status?.lastOperation;
  return [
    newest?.sizeBytes === undefined ? "-" : formatBytes(newest.sizeBytes).replace(" ", ""),
    String(status?.assignment?.epoch ?? "-"),
    [newest, ...older]
      .filter((entry): entry is SnapshotEntry => entry !== undefined)
      .map((entry) => `${entry.generation}:${shortState(entry.storageState)}`)
      .join(",") || "-",
    last === undefined ? "-" : `${last.type} ${last.result}${last.reason === undefined ? "" : ` (${last.reason})`}`,
    status?.conditions?.find(({ type }) => type === "Ready")?.message ?? "-",
  ];
}

function age(creationTimestamp: string | undefined, nowMs: number): string {
  if (creationTimestamp === undefined) return "-";
  return formatDurationMs(Math.max(0, Math.floor((nowMs - Date.parse(creationTimestamp)) / 1000) * 1000));
}
