import type { Snapshot } from "@substrate/crds/snapshot.ts";
import { setTimeout as sleep } from "node:timers/promises";
import { formatDurationMs } from "@substrate/lib/resources.ts";
import { type ActorAddress } from "./address.ts";
import { type Connection } from "./connection.ts";
import { CommandFailure } from "./failure.ts";
import { createObject, findObject, listObjects } from "./objects.ts";
import { type Progress } from "./progress.ts";
import { shortState } from "./states.ts";

const pollMs = 250;

export async function findSource(
  connection: Connection,
  address: ActorAddress,
  text: string,
): Promise<string | number> {
  return sourceAmong(await listObjects<Snapshot>(connection, "snapshots", address.namespace), address, text);
}

/**
 * What `text` means: the Snapshot of a tag (its name, whatever tags have that one for theirs), one of a generation of this
 * actor (its number), or a tag that one Snapshot of this actor has.
 * @param all of the namespace
 * @throws {CommandFailure} when it means none of them, or several
 */
export function sourceAmong(
  all: readonly Snapshot[],
  { namespace, name }: ActorAddress,
  text: string,
): string | number {
  const own = all.filter(({ spec }) => spec.actorRef?.name === name);
  const tags = own.filter(({ spec }) => spec.tag !== undefined);
  const named = all.find(({ metadata }) => metadata.name === text);
  const tagged = named === undefined ? tags.filter(({ spec }) => spec.tag === text) : [named];
  if (tagged.length > 1) throw ambiguous(name, text, tagged);
  if (tagged[0]?.spec.tag !== undefined) return tagged[0].metadata.name;
  if (named?.spec.actorRef?.name === name && named.spec.generation !== undefined) return named.spec.generation;
  if (named !== undefined) {
    const what = `snapshot ${namespace}/${text} is neither a tag nor a generation of actor ${name}`;
    throw new CommandFailure("usage", what, 'see "kubectl get snapshots"');
  }
  throw new CommandFailure(
    "notFound",
    `there is no tag ${text} in namespace ${namespace}`,
    tags.length === 0
      ? `actor ${name} has none: make one with "kubectl ate tag ${name} TAG", or name a generation by its number`
      : `actor ${name} has ${tags.map(({ spec }) => spec.tag).join(", ")}`,
  );
}

/** Which of them is meant nobody but the caller knows: the wrong one would give up newer work. */
function ambiguous(actor: string, tag: string, tagged: readonly Snapshot[]): CommandFailure {
  const time = ({ metadata }: Snapshot): string => metadata.creationTimestamp ?? "";
  const newestFirst = tagged.toSorted((a, b) => time(b).localeCompare(time(a)));
  const lines = newestFirst.map(({ metadata, status }) => {
    const generation = status?.generation === undefined ? "no generation yet" : `generation ${status.generation}`;
    return `  ${metadata.name}: ${generation}, ${metadata.creationTimestamp ?? "?"}, ${shortState(status?.storageState)}`;
  });
  return new CommandFailure(
    "usage",
    `${tagged.length} snapshots of actor ${actor} have the tag ${tag}:\n${lines.join("\n")}`,
    `name the one you mean, for the newest: kubectl ate resume ${actor} --from ${newestFirst[0]?.metadata.name ?? ""}`,
  );
}

/** @throws {CommandFailure} for what no Snapshot of a tag can be named */
export function checkTag(tag: string): void {
  if (/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(tag) && tag.length <= 63 && !/^[0-9]+$/.test(tag)) return;
  throw new CommandFailure(
    "usage",
    `"${tag}" is no name for a tag`,
    "it must be lower-case letters, digits, - and ., at most 63, beginning and ending with a letter or digit, and not a number",
  );
}

/** The Snapshot object that keeps a tag of an actor. */
export function tagObjectName(actor: string, tag: string): string {
  return `${actor}-${tag}`;
}

export function createTag(connection: Connection, { namespace, name }: ActorAddress, tag: string): Promise<Snapshot> {
  return createObject<Snapshot>(connection, "snapshots", "Snapshot", {
    metadata: { name: tagObjectName(name, tag), namespace },
    spec: { actorRef: { name }, tag },
  });
}

/** Resolves when it is in the store. @throws {CommandFailure} when it failed, was deleted or time is up */
export async function untilStored(
  connection: Connection,
  { metadata: { name, namespace = "" } }: Snapshot,
  timeoutMs: number,
  progress: Progress,
): Promise<Snapshot> {
  const endMs = performance.now() + timeoutMs;
  for (;;) {
    const snapshot = await findObject<Snapshot>(connection, "snapshots", namespace, name);
    if (snapshot === undefined) {
      throw new CommandFailure("notFound", `snapshot ${namespace}/${name} was deleted meanwhile`);
    }
    const state = snapshot.status?.storageState;
    if (state === "SNAPSHOT_STORAGE_STATE_COMPLETED") return snapshot;
    const why = reasonOf(snapshot);
    if (state === "SNAPSHOT_STORAGE_STATE_FAILED") {
      const hint = `delete it with "kubectl delete snapshot ${name} -n ${namespace}" and tag again`;
      throw new CommandFailure("operationFailed", `snapshot ${namespace}/${name} failed: ${why ?? "no message"}`, hint);
    }
    if (performance.now() > endMs) {
      throw new CommandFailure(
        "timeout",
        `snapshot ${namespace}/${name} is not in the store within ${formatDurationMs(timeoutMs)}${why === undefined ? "" : `: ${why}`}; it goes on`,
        `follow it with "kubectl get snapshot ${name} -n ${namespace} -w"`,
      );
    }
    progress.say(`snapshot ${namespace}/${name}: ${shortState(state)}${why === undefined ? "" : ` (${why})`}`);
    await sleep(pollMs);
  }
}

function reasonOf({ status }: Snapshot): string | undefined {
  const conditions = status?.conditions ?? [];
  const bad = ["Ready", "Durable"].map((type) =>
    conditions.find((entry) => entry.type === type && entry.status !== "True"),
  );
  return bad.find((condition) => condition !== undefined)?.message;
}
