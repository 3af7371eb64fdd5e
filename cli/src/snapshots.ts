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

/** What `text` means: a tag of this actor, a tag's Snapshot (its name), or one of a generation of this actor (its number). */
export async function findSource(
  connection: Connection,
  { namespace, name }: ActorAddress,
  text: string,
): Promise<string | number> {
  const all = await listObjects<Snapshot>(connection, "snapshots", namespace);
  const own = all.filter(({ spec }) => spec.actorRef?.name === name);
  const tags = own.filter(({ spec }) => spec.tag !== undefined);
  const named = all.find(({ metadata }) => metadata.name === text);
  const tagged = named ?? tags.find(({ spec }) => spec.tag === text);
  if (tagged?.spec.tag !== undefined) return tagged.metadata.name;
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
