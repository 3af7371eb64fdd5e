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

/** The name of the Snapshot that `text` means: its own name, or the tag of one of this actor's. */
export async function findTag(
  connection: Connection,
  { namespace, name }: ActorAddress,
  text: string,
): Promise<string> {
  const all = await listObjects<Snapshot>(connection, "snapshots", namespace);
  const tags = all.filter(({ spec }) => spec.tag !== undefined);
  const own = tags.filter(({ spec }) => spec.actorRef?.name === name);
  const found = tags.find(({ metadata }) => metadata.name === text) ?? own.find(({ spec }) => spec.tag === text);
  if (found !== undefined) return found.metadata.name;
  throw new CommandFailure(
    "notFound",
    `there is no tag ${text} in namespace ${namespace}`,
    own.length === 0
      ? `actor ${name} has none: make one with "kubectl ate tag ${name} TAG", or name a generation by its number`
      : `actor ${name} has ${own.map(({ spec }) => spec.tag).join(", ")}`,
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
