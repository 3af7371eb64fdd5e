import type { Actor } from "@substrate/crds/actor.ts";
import type { Snapshot } from "@substrate/crds/snapshot.ts";
import { formatBytes, formatDurationMs } from "@substrate/lib/resources.ts";
import { columns } from "./columns.ts";
import { type Condition, isFailedUpload } from "./condition.ts";
import { type PastOperation, type Usage } from "./inspection.ts";
import { shortState } from "./states.ts";
import { withoutSubject } from "./subject.ts";

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

/** All that a person needs to know of one actor, what is wrong with it first. */
export function description(facts: Facts): string {
  const { actor, nowMs } = facts;
  const ready = conditionOf(actor, "Ready");
  const first = [head(actor, nowMs), crash(facts), attention(actor)];
  const rest = [
    section("Conditions", conditions(actor, nowMs)),
    section("Generations", generations(actor)),
    section("Tags", tags(facts.tags)),
    section("Usage", usage(actor, facts.usage)),
    section("Operations", timeline(facts.operations, nowMs)),
    section("Events", events(facts.events, nowMs)),
  ].map((part) => (isTrouble(ready) ? withoutRepetition(part, ready.message) : part));
  return [...first, ...rest].filter((part) => part !== "").join("\n");
}

const conditionOf = ({ status }: Actor, type: string): Condition | undefined =>
  status?.conditions?.find((condition) => condition.type === type);

const isTrouble = (ready: Condition | undefined): ready is Condition => ready !== undefined && ready.status !== "True";

/** Long words that stand at the top already hide what a table has beside them. */
function withoutRepetition(text: string, message: string): string {
  return message.length < 60 ? text : text.replaceAll(message, "(see above)");
}

function section(title: string, body: string): string {
  return `${title}:${body === "" ? " none\n" : `\n${indent(body)}`}`;
}

function head(actor: Actor, nowMs: number): string {
  const { metadata, spec, status } = actor;
  const key = `${metadata.namespace ?? ""}/${metadata.name}`;
  const ready = conditionOf(actor, "Ready");
  const { assignment } = status ?? {};
  const rows: [string, string | undefined][] = [
    ["Name:", metadata.name],
    ["Namespace:", metadata.namespace],
    ["State:", shortState(status?.state)],
    [
      "Ready:",
      ready === undefined
        ? "not looked at yet: does the operator run?"
        : `${ready.status}, ${ready.reason}: ${withoutSubject(key, ready.message)}`,
    ],
    ["Being deleted:", deletion(actor, nowMs)],
    ["Template:", `${spec.templateRef.name}${status?.revision === undefined ? "" : `, revision ${status.revision}`}`],
    ["Node:", assignment?.nodeName === undefined ? "none" : `${assignment.nodeName}, epoch ${assignment.epoch}`],
    ["Wanted:", spec.state],
    ["From:", spec.source && `snapshot ${spec.source.snapshotRef.name}`],
    ["Env:", spec.env && spec.env.length > 0 ? spec.env.map(({ name }) => name).join(", ") : undefined],
    ["Last activity:", status?.lastActivityTime && ago(status.lastActivityTime, nowMs)],
    ["Age:", metadata.creationTimestamp && ago(metadata.creationTimestamp, nowMs).replace(" ago", "")],
    ["UID:", metadata.uid],
  ];
  return columns(rows.filter((row): row is [string, string] => row[1] !== undefined));
}

/** Conditions beside Ready that ask for something to be done. */
function attention(actor: Actor): string {
  const name = `${actor.metadata.name} -n ${actor.metadata.namespace ?? ""}`;
  const lines: string[] = [];
  const [env, volumes, durable, scheduled] = ["EnvOutdated", "VolumesFull", "Durable", "Scheduled"].map((type) =>
    conditionOf(actor, type),
  );
  if (env !== undefined && env.status !== "False") {
    lines.push(env.message);
    if (env.status === "True") lines.push(`  kubectl ate suspend ${name} && kubectl ate resume ${name} --boot`);
  }
  if (volumes?.status === "True") lines.push(volumes.message);
  if (durable !== undefined && isFailedUpload(durable)) lines.push(`${durable.message} (${durable.reason})`);
  if (scheduled?.status === "False") lines.push(scheduled.message);
  return lines.length === 0 ? "" : section("Attention", lines.map((line) => `${line}\n`).join(""));
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

function crash({ actor, tags, nowMs }: Facts): string {
  const { metadata, status } = actor;
  const looping = conditionOf(actor, "Ready")?.reason === "CrashLoop";
  if (status?.crash === undefined && !looping) return "";
  const name = `${metadata.name} -n ${metadata.namespace ?? ""}`;
  const lines: string[] = [];
  if (status?.crash !== undefined) {
    const [what = "", output] = status.crash.message.split(/; its last output: /s);
    lines.push(`${what} (${ago(status.crash.time, nowMs)})`);
    if (output !== undefined) lines.push("Last output:", ...output.split("\n").map((line) => `  ${line}`));
  } else lines.push("It never got as far as answering. What it wrote:", `  kubectl ate log ${name} --tail 20`);
  if (looping) lines.push("Nothing starts it any more but one of:", ...waysOut(name, actor, tags));
  return section("Crash", `${lines.join("\n")}\n`);
}

/** The generations that it can go back to, the newest three, its tags, and a cold start. */
function waysOut(name: string, { status }: Actor, tags: Snapshot[] | string): string[] {
  const usable = (status?.snapshots ?? []).filter(
    ({ storageState }) =>
      storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED" || storageState === "SNAPSHOT_STORAGE_STATE_PENDING",
  );
  const stored = (typeof tags === "string" ? [] : tags).filter(
    (tag) => tag.status?.storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED",
  );
  const from = [
    ...usable.slice(0, 3).map(({ generation }) => String(generation)),
    ...stored.slice(0, 3).map(({ spec }) => spec.tag ?? ""),
  ];
  return [
    ...from.map((source) => `  kubectl ate resume ${name} --from ${source}`),
    `  kubectl ate resume ${name} --boot   (cold, with its volumes)`,
  ];
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

function usage({ status }: Actor, found: Usage | string): string {
  if (typeof found === "string") return `unknown: ${found}\n`;
  const none = status?.state === "ACTOR_STATE_SUSPENDED" ? "none, it sleeps" : "none, it does not run";
  const rows = [
    [
      "Memory:",
      found.memoryBytes === 0 ? none : `${formatBytes(found.memoryBytes)} of ${formatBytes(found.memoryLimitBytes)}`,
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
