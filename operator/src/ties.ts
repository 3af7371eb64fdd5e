import { type Actor } from "@substrate/crds/index.ts";
import {
  type ActorReport,
  ActorState,
  Fidelity,
  type Generation,
  StorageState,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";

/** What an actor's state fits. */
export type Tie =
  /** Its program runs. */
  | { kind: "running"; revision: string }
  /** A memory image: exactly the revision that wrote it. */
  | { kind: "memory"; revision: string; generation: number }
  /** Files: any revision that has its volumes. */
  | { kind: "files"; revision: string; generation: number }
  /** It was started cold, or from a tag, after its newest generation, and goes on from that. */
  | { kind: "unsaved"; revision: string }
  /** It was never saved: it starts cold, or from its origin. The revision that ran last, if one did. */
  | { kind: "none"; revision: string | undefined };

/** Whether a program may be there: nothing about it may be changed but its grant. */
export function isAwake({ state }: ActorReport): boolean {
  switch (state) {
    case ActorState.ACTOR_STATE_RUNNING:
    case ActorState.ACTOR_STATE_RESUMING:
    case ActorState.ACTOR_STATE_SUSPENDING:
    case ActorState.ACTOR_STATE_DELETING:
      return true;
    case ActorState.ACTOR_STATE_SUSPENDED:
    case ActorState.ACTOR_STATE_CRASHED:
    case ActorState.ACTOR_STATE_UNSPECIFIED:
    case ActorState.UNRECOGNIZED:
      return false;
  }
}

/** Whether it can be started from. */
export function isUsable({ local, storageState }: Generation): boolean {
  if (storageState === StorageState.STORAGE_STATE_COMPLETED) return true;
  return storageState === StorageState.STORAGE_STATE_PENDING && local;
}

/**
 * By the report of the node that holds it, in its absence (the node doesn't know the stored generations yet, or nobody
 * holds it) by what the status says.
 */
export function tieOf(actor: Actor, report: ActorReport | undefined): Tie {
  const { status } = actor;
  if (report !== undefined && isAwake(report)) return { kind: "running", revision: report.revision };
  if (report !== undefined && report.generations.length > 0) {
    const source = report.generations.find((one) => one.generation > report.floor && isUsable(one));
    if (source === undefined) return { kind: "unsaved", revision: report.revision };
    const { revision } = source;
    const kind = source.fidelity === Fidelity.FIDELITY_ROOTFS || source.fidelity === Fidelity.FIDELITY_DATA;
    return { kind: kind ? "files" : "memory", revision, generation: Number(source.generation) };
  }
  const generation = status?.generation ?? 0;
  if (generation > 0 && status?.revision !== undefined) {
    const fidelity = status.snapshots?.find((entry) => entry.generation === generation)?.fidelity ?? "Memory";
    return { kind: fidelity === "Memory" ? "memory" : "files", revision: status.revision, generation };
  }
  const crashed = report === undefined ? status?.crash !== undefined : report.crash !== undefined;
  return { kind: "none", revision: crashed ? (report?.revision ?? status?.revision) : undefined };
}

/** It was started cold after its newest generation, and not saved since: another node would restore that generation. */
export function isBehindFloor({ floor, generations }: ActorReport): boolean {
  const [newest] = generations;
  return newest !== undefined && newest.generation <= floor;
}

/** Its newest state is damaged and there is no other: nothing starts it, but a person who chooses from what. */
export function isDamaged(report: ActorReport | undefined): boolean {
  return (report?.damage ?? "") !== "";
}
