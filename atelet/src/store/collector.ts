import { type Heads, refuseHigherEpoch } from "./heads.ts";
import { epochOfPack, objectKey, packFolder, packObject } from "./layout.ts";
import { manifestsAmong, packPlaces, readManifest } from "./manifests.ts";
import { type ActorPrefix } from "./snapshots.ts";
import { type ObjectStore } from "./store.ts";

/**
 * Removes those packs of an actor that no manifest under its prefix names, by whom holds its epoch and uploads nothing
 * of it meanwhile. Needs no lock (ADR 0031): a later epoch names only packs of its own and of what the head named when
 * it was claimed, and the head that is read here first is that one, or has the later epoch already.
 */
export async function collectPacks(
  store: ObjectStore,
  heads: Heads,
  prefix: ActorPrefix,
  epoch: number,
): Promise<void> {
  const head = await heads.read(prefix);
  refuseHigherEpoch(prefix, head, epoch);
  const keys = await store.list(objectKey(prefix, ""));
  const folder = packObject(prefix, packFolder(prefix));
  const packs = keys.filter((key) => key.startsWith(folder));
  if (packs.length === 0) return;
  const manifests = await manifestsAmong(store, prefix, keys);
  // Said by itself: no listing that was cut short may hide it.
  if (head !== undefined && head.manifest !== null) {
    manifests.push((await readManifest(store, prefix, head.manifest)).manifest);
  }
  const named = new Set(manifests.flatMap(packPlaces).map((place) => packObject(prefix, place)));
  const unnamed = packs.filter((key) => !named.has(key) && epochOfPack(key) <= epoch);
  if (unnamed.length > 0) await store.deleteAll(unnamed);
}
