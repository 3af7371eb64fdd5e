import { type Actor, type SnapshotEntry } from "@substrate/crds/index.ts";
import {
  type ActorReport,
  Fidelity,
  type Generation,
  StorageState,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";

/** On Snapshot objects: the actor whose generation it is. */
export const actorUidLabel = "substrate.run/actor-uid";

/** How many generations an Actor's status lists at most. */
export const maxListed = 16;

export function snapshotName(actorName: string, generation: number): string {
  return `${actorName}-${generation}`;
}

/** The actor's name and the generation in a Snapshot's name; undefined for names that aren't ours. */
export function parseSnapshotName(name: string): { actorName: string; generation: number } | undefined {
  const match = /^(.+)-([1-9]\d*)$/.exec(name);
  const [, actorName, generation] = match ?? [];
  return actorName === undefined ? undefined : { actorName, generation: Number(generation) };
}

export function snapshotStorageState(state: StorageState): SnapshotEntry["storageState"] {
  switch (state) {
    case StorageState.STORAGE_STATE_COMPLETED:
      return "SNAPSHOT_STORAGE_STATE_COMPLETED";
    case StorageState.STORAGE_STATE_FAILED:
      return "SNAPSHOT_STORAGE_STATE_FAILED";
    case StorageState.STORAGE_STATE_LOST:
      return "SNAPSHOT_STORAGE_STATE_LOST";
    case StorageState.STORAGE_STATE_PENDING:
    case StorageState.STORAGE_STATE_UNSPECIFIED:
    case StorageState.UNRECOGNIZED:
      return "SNAPSHOT_STORAGE_STATE_PENDING";
  }
}

export function statusFidelity(fidelity: Fidelity): SnapshotEntry["fidelity"] {
  switch (fidelity) {
    case Fidelity.FIDELITY_ROOTFS:
      return "Rootfs";
    case Fidelity.FIDELITY_DATA:
      return "Data";
    case Fidelity.FIDELITY_MEMORY:
    case Fidelity.FIDELITY_UNSPECIFIED:
    case Fidelity.UNRECOGNIZED:
      return "Memory";
  }
}

interface Sources {
  actor: Actor;
  /** The assigned node's report; without one the status' own list stands. */
  report: ActorReport | undefined;
  localNode: (generation: number) => string | undefined;
}

function entry(actor: Actor, generation: Generation): SnapshotEntry {
  const number = Number(generation.generation);
  return {
    name: snapshotName(actor.metadata.name, number),
    generation: number,
    owner: "SNAPSHOT_OWNER_ACTOR",
    storageState: snapshotStorageState(generation.storageState),
    fidelity: statusFidelity(generation.fidelity),
    sizeBytes: Number(generation.sizeBytes),
  };
}

/** status.snapshots, newest first; an entry's nodeName says where its files are. */
export function snapshotEntries({ actor, report, localNode }: Sources): SnapshotEntry[] {
  const entries = report?.generations.map((generation) => entry(actor, generation)) ?? actor.status?.snapshots ?? [];
  return entries
    .toSorted((a, b) => b.generation - a.generation)
    .slice(0, maxListed)
    .map(({ nodeName: before, ...rest }) => {
      const found = localNode(rest.generation);
      const nodeName = found === unknownNode ? before : found;
      return nodeName === undefined ? rest : { ...rest, nodeName };
    });
}

/** What `localNode` answers while a node that may have the files isn't synced. */
export const unknownNode = "";

/** The newest generation that was really made; 0 before the first. */
export function newestGeneration(sources: Sources): number {
  const made = snapshotEntries(sources).filter(({ storageState }) => storageState !== "SNAPSHOT_STORAGE_STATE_FAILED");
  return made[0]?.generation ?? sources.actor.status?.generation ?? 0;
}
