import { type ActorPrefix } from "./snapshots.ts";

/** Of a memory image: stored as packs, and not as a file. */
export const pagesFile = "pages.img";
/** Beside a manifest with pages. */
export const indexFile = "pages.index";
export const manifestFile = "manifest.json";

/** Where what an actor, or a Snapshot object, owns lies in a store. @param key relative to its prefix. */
export function objectKey({ clusterUid, namespaceUid, actorUid }: ActorPrefix, key: string): string {
  return `${clusterUid}/${namespaceUid}/${actorUid}/${key}`;
}

export function headKey(prefix: ActorPrefix): string {
  return objectKey(prefix, "head.json");
}

export function generationFolder(generation: number, epoch: number): string {
  return `${generation}-${epoch}/`;
}

export function manifestKey(generation: number, epoch: number): string {
  return `${generationFolder(generation, epoch)}${manifestFile}`;
}

/** @param key relative to the prefix. */
export function isManifestKey(key: string): boolean {
  return /^\d+-\d+\/manifest\.json$/.test(key);
}

/** Of packs; these keys are relative to the cluster's prefix, as indexes and manifests name them. */
export function packFolder({ namespaceUid, actorUid }: ActorPrefix): string {
  return `${namespaceUid}/${actorUid}/packs/`;
}

/** The object of a pack. @param key relative to the cluster's prefix. */
export function packObject({ clusterUid }: Pick<ActorPrefix, "clusterUid">, key: string): string {
  return `${clusterUid}/${key}`;
}

/** Whose prefix a pack lies under. */
export function ownerOfPack({ clusterUid }: ActorPrefix, key: string): ActorPrefix {
  const [namespaceUid = "", actorUid = ""] = key.split("/");
  return { clusterUid, namespaceUid, actorUid };
}

/** Under which epoch a pack of an actor's own was written: <generation>-<epoch>-<number>-<digest>. */
export function epochOfPack(key: string): number {
  const name = key.slice(key.lastIndexOf("/") + 1);
  return Number(/^\d+-(\d+)-/.exec(name)?.[1] ?? Number.NaN);
}

/** The name of a copy of a pack: one pack has one name among all copies of one owner. */
export function copiedPack(key: string, to: ActorPrefix): string {
  const [, owner = "", , name = ""] = key.split("/");
  return `${packFolder(to)}${owner}-${name}`;
}

/** Where the users of a Snapshot's packs say so. */
export function usersFolder(owner: ActorPrefix): string {
  return objectKey(owner, "users/");
}

/** Is there from when the deletion of what this prefix holds has begun. */
export function tombstoneKey(owner: ActorPrefix): string {
  return objectKey(owner, "tombstone");
}
