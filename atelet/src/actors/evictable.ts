import { type Removable } from "../disk/removal.ts";
import { type Actor } from "./actor.ts";
import { type Generation } from "./record.ts";

/** As du does. */
type BytesBelow = (dir: string) => Promise<number>;

/**
 * R24: local copies that may go when the node's disk is full: of what is in the store, where nobody reads it. First those
 * of running actors, which need them only after a crash; then those of sleeping ones; the oldest first.
 */
export function evictableCopies(actors: readonly Actor[], bytesBelow: BytesBelow): Removable[] {
  return actors
    .flatMap((actor) => actor.generations.all().flatMap((one) => (mayGo(actor, one) ? { actor, one } : [])))
    .sort((a, b) => Number(b.actor.state === "RUNNING") - Number(a.actor.state === "RUNNING") || age(a.one, b.one))
    .map(({ actor, one }) => ({
      kind: "generation",
      name: `generation ${one.generation} of ${actor.name}`,
      bytes: () => bytesBelow(actor.generations.home(one.generation)),
      remove: async () => {
        if (!mayGo(actor, one)) return false;
        await actor.evictCopy(one.generation);
        return true;
      },
    }));
}

/** Has what only this node has stored at once. @returns of how many actors. */
export function hurryUploads(actors: readonly Actor[]): number {
  const pending = actors.filter((actor) => actor.pendingGeneration !== undefined);
  for (const actor of pending) actor.hurryUpload();
  return pending.length;
}

function age(one: Generation, other: Generation): number {
  return one.createdAtMs - other.createdAtMs;
}

/** While an operation is under way it may be about to read them. */
function mayGo({ state, record, generations }: Actor, { generation, epoch, storage }: Generation): boolean {
  if (state !== "RUNNING" && state !== "SUSPENDED" && state !== "CRASHED") return false;
  const tagged = record.tags.some((tag) => tag.generation === generation && tag.epoch === epoch);
  return storage.state === "COMPLETED" && !tagged && generations.isAtRest(generation);
}
