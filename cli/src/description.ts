import type { Actor } from "@substrate/crds/actor.ts";
import type { Snapshot } from "@substrate/crds/snapshot.ts";
import { formatBytes, formatDurationMs } from "@substrate/lib/resources.ts";
import { columns } from "./columns.ts";
import { type PastOperation, type Usage } from "./inspection.ts";
import { shortState } from "./states.ts";

/** An Event of the actor, as core/v1 has it. */
export interface ActorEvent {
  type?: string;
  reason?: string;
  message?: string;
  count?: number;
  lastTimestamp?: string | null;
  eventTime?: string | null;
  metadata: { creationTimestamp?: string };
}

/** What could be read; a part that could not says why instead. */
export interface Facts {
  actor: Actor;
  tags: Snapshot[] | string;
  events: ActorEvent[] | string;
  operations: PastOperation[] | string;
  usage: Usage | string;
  nowMs: number;
}

const indent = (text: string): string => text.replace(/^(?=.)/gm, "  ");
const ago = (time: string, nowMs: number): string => `${formatDurationMs(Math.max(0, nowMs - Date.parse(time)))} ago`;

/** All that a person needs to know of one actor. */
export function description(facts: Facts): string {
  const { actor, nowMs } = facts;
  return [
    head(actor, nowMs),
    crash(actor, nowMs),
    section("Conditions", conditions(actor, nowMs)),
    section("Generations", generations(actor)),
    section("Tags", tags(facts.tags)),
    section("Usage", usage(facts.usage)),
    section("Operations", timeline(facts.operations, nowMs)),
    section("Events", events(facts.events, nowMs)),
  ]
    .filter((part) => part !== "")
    .join("\n");
}

function section(title: string, body: string): string {
  return `${title}:${body === "" ? " none\n" : `\n${indent(body)}`}`;
}

function head(actor: Actor, nowMs: number): string {
  const { metadata, spec, status } = actor;
  const ready = status?.conditions?.find(({ type }) => type === "Ready");
  const { assignment } = status ?? {};
  const rows: [string, string | undefined][] = [
    ["Name:", metadata.name],
    ["Namespace:", metadata.namespace],
    ["UID:", metadata.uid],
    ["Age:", metadata.creationTimestamp && ago(metadata.creationTimestamp, nowMs).replace(" ago", "")],
    ["Template:", `${spec.templateRef.name}${status?.revision === undefined ? "" : `, revision ${status.revision}`}`],
    ["Wanted:", spec.state],
    ["From:", spec.source && `snapshot ${spec.source.snapshotRef.name}`],
    ["Env:", spec.env && spec.env.length > 0 ? spec.env.map(({ name }) => name).join(", ") : undefined],
    [
      "State:",
      shortState(status?.state) + (ready?.status === "True" ? "" : ` (${ready?.message ?? "not looked at yet"})`),
    ],
    ["Node:", assignment && `${assignment.nodeName ?? "none"}, epoch ${assignment.epoch}`],
    ["Last activity:", status?.lastActivityTime && ago(status.lastActivityTime, nowMs)],
    ["Being deleted:", deletion(actor, nowMs)],
  ];
  return columns(rows.filter((row): row is [string, string] => row[1] !== undefined));
}

function deletion({ metadata }: Actor, nowMs: number): string | undefined {
  const since = (metadata as { deletionTimestamp?: string }).deletionTimestamp;
  if (since === undefined) return undefined;
  const name = `${metadata.name} -n ${metadata.namespace ?? ""}`;
  return (
    `since ${ago(since, nowMs)}: it waits for its node; if that never comes back: ` +
    `kubectl annotate actor ${name} substrate.run/abandon=true`
  );
}

function crash({ metadata, status }: Actor, nowMs: number): string {
  const ready = status?.conditions?.find(({ type }) => type === "Ready");
  const looping = ready?.reason === "CrashLoop";
  if (status?.crash === undefined && !looping) return "";
  const { message, time } = status?.crash ?? { message: ready?.message ?? "", time: undefined };
  const [what = "", output] = message.split(/; its last output: /s);
  const lines = [`${what}${time === undefined ? "" : ` (${ago(time, nowMs)})`}`];
  if (output !== undefined) lines.push("Last output:", ...output.split("\n").map((line) => `  ${line}`));
  if (looping) {
    const name = `${metadata.name} -n ${metadata.namespace ?? ""}`;
    lines.push(
      "It crashed again and again, so nothing starts it any more but one of:",
      `  kubectl ate resume ${name} --from N   (a generation below, or a tag)`,
      `  kubectl ate resume ${name} --boot     (cold, with its volumes)`,
    );
  }
  return section("Crash", `${lines.join("\n")}\n`);
}

function conditions({ status }: Actor, nowMs: number): string {
  const all = status?.conditions ?? [];
  if (all.length === 0) return "";
  return columns([
    ["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"],
    ...all.map(({ type, status: value, reason, lastTransitionTime, message }) => [
      type,
      value,
      reason,
      ago(lastTransitionTime, nowMs).replace(" ago", ""),
      message,
    ]),
  ]);
}

function generations({ status }: Actor): string {
  const all = status?.snapshots ?? [];
  if (all.length === 0) return "";
  return columns([
    ["GENERATION", "STORAGE", "FIDELITY", "SIZE", "NODE", "SNAPSHOT"],
    ...all.map(({ generation, storageState, fidelity, sizeBytes, nodeName, name }) => [
      String(generation),
      shortState(storageState),
      fidelity,
      sizeBytes === undefined ? "-" : formatBytes(sizeBytes),
      nodeName ?? "-",
      name,
    ]),
  ]);
}

function tags(all: Snapshot[] | string): string {
  if (typeof all === "string") return `unknown: ${all}\n`;
  if (all.length === 0) return "";
  return columns([
    ["TAG", "STORAGE", "GENERATION", "SIZE", "SNAPSHOT"],
    ...all.map(({ metadata, spec, status }) => [
      spec.tag ?? "-",
      shortState(status?.storageState),
      String(status?.generation ?? "-"),
      status?.sizeBytes === undefined ? "-" : formatBytes(status.sizeBytes),
      metadata.name,
    ]),
  ]);
}

function usage(found: Usage | string): string {
  if (typeof found === "string") return `unknown: ${found}\n`;
  const rows = [
    [
      "Memory:",
      found.memoryBytes === 0
        ? "none, it sleeps"
        : `${formatBytes(found.memoryBytes)} of ${formatBytes(found.memoryLimitBytes)}`,
    ],
    ["Snapshots here:", formatBytes(found.localBytes)],
    ...found.volumes.map(({ name, usedBytes, limitBytes }) => [
      `Volume ${name}:`,
      `${formatBytes(usedBytes)}${limitBytes === undefined ? "" : ` of ${formatBytes(limitBytes)}`}`,
    ]),
  ];
  return columns(rows);
}

/** One line an operation, the phases that took a hundredth of it or more in their order. */
function timeline(operations: PastOperation[] | string, nowMs: number): string {
  if (typeof operations === "string") return `unknown: ${operations}\n`;
  if (operations.length === 0) return "";
  return columns([
    ["WHEN", "TYPE", "RESULT", "TOOK", "PHASES"],
    ...operations.map(({ type, result, reason, message, startTime, endTime, phases }) => {
      const tookMs = endTime === undefined ? undefined : Date.parse(endTime) - Date.parse(startTime);
      const why = reason === undefined ? "" : ` (${reason}${message === undefined ? "" : `: ${message}`})`;
      const long = phases.filter(({ ms }) => ms >= Math.max(1, (tookMs ?? 0) / 100));
      const shown = long.map(({ name, ms }) => `${name} ${formatDurationMs(ms)}`).join(", ");
      return [
        ago(startTime, nowMs),
        type,
        result,
        tookMs === undefined ? "-" : formatDurationMs(tookMs),
        `${shown}${why}`.trim() || "-",
      ];
    }),
  ]);
}

function events(all: ActorEvent[] | string, nowMs: number): string {
  if (typeof all === "string") return `unknown: ${all}\n`;
  if (all.length === 0) return "";
  const time = (event: ActorEvent): string =>
    event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp ?? new Date(nowMs).toISOString();
  const sorted = all.toSorted((a, b) => Date.parse(time(b)) - Date.parse(time(a))).slice(0, 20);
  return columns([
    ["WHEN", "TYPE", "REASON", "MESSAGE"],
    ...sorted.map((event) => [
      ago(time(event), nowMs) + ((event.count ?? 1) > 1 ? ` (x${event.count ?? 1})` : ""),
      event.type ?? "-",
      event.reason ?? "-",
      event.message ?? "",
    ]),
  ]);
}
