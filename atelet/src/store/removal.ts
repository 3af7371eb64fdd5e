import { asSubstrateError } from "@substrate/lib/errors.ts";
import { headKey, objectKey, packFolder, packObject, tombstoneKey, usersFolder } from "./layout.ts";
import { manifestsAmong } from "./manifests.ts";
import { type ActorPrefix, type Removal } from "./snapshots.ts";
import { type Manifest, type ObjectStore } from "./store.ts";
import { foreignOwners, type PackUsers } from "./users.ts";

/** Removes what a prefix holds; packs that others use stay until they don't. Done again, it goes on where it was cut. */
export async function removePrefix(store: ObjectStore, users: PackUsers, prefix: ActorPrefix): Promise<Removal> {
  const all = objectKey(prefix, "");
  const keys = await store.list(all);
  if (keys.length === 0) return "removed";
  // Its marks first: the data that they speak of is not wanted any more, and later nobody knows where they are.
  for (const owner of foreignOwners(prefix, await readable(store, prefix, keys))) await users.unmark(owner, prefix);
  const head = headKey(prefix);
  const tombstone = tombstoneKey(prefix);
  const packs = packObject(prefix, packFolder(prefix));
  if (keys.some((key) => key.startsWith(packs) || key === tombstone)) {
    await store.put(tombstone, Buffer.from("{}"));
    if (await users.areUsed(prefix)) {
      const kept = [packs, usersFolder(prefix), tombstone, head];
      await remove(store, keys, (key) => kept.every((one) => !key.startsWith(one)));
      await store.delete(head);
      return "waiting";
    }
  }
  await remove(store, await store.list(all), (key) => key !== head && key !== tombstone);
  await store.delete(head);
  await store.delete(tombstone);
  return "removed";
}

async function remove(store: ObjectStore, keys: readonly string[], which: (key: string) => boolean): Promise<void> {
  const going = keys.filter(which);
  if (going.length > 0) await store.deleteAll(going);
}

/** Damaged manifests must not keep the rest of a deleted actor; a mark that they leave goes with the Snapshot. */
async function readable(store: ObjectStore, prefix: ActorPrefix, keys: readonly string[]): Promise<Manifest[]> {
  const found: Manifest[] = [];
  for (const key of keys) {
    try {
      found.push(...(await manifestsAmong(store, prefix, [key])));
    } catch (error) {
      if (!["SNAPSHOT_DAMAGED", "RESTORE_FAILED"].includes(asSubstrateError(error).code)) throw error;
    }
  }
  return found;
}
