import { createHash } from "node:crypto";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { parseManifest } from "./documents.ts";
import { isManifestKey, manifestKey, objectKey, pagesFile } from "./layout.ts";
import { type ActorPrefix, type CommitResult } from "./snapshots.ts";
import { type Manifest, type ObjectStore } from "./store.ts";

export interface ReadManifest {
  manifest: Manifest;
  body: Buffer;
}

/** @param key relative to the prefix. @returns undefined if it is not there. Throws what parseManifest throws. */
export async function findManifest(
  store: ObjectStore,
  prefix: ActorPrefix,
  key: string,
): Promise<ReadManifest | undefined> {
  const full = objectKey(prefix, key);
  const object = await store.get(full);
  if (!object) return undefined;
  const manifest = parseManifest(full, object.body);
  if (manifest.actor.uid !== prefix.actorUid || manifestKey(manifest.generation, manifest.epoch) !== key) {
    const what = `generation ${manifest.generation}, epoch ${manifest.epoch} of actor ${manifest.actor.uid}`;
    throw new SubstrateError("SNAPSHOT_DAMAGED", `${full} is the manifest of ${what}`);
  }
  return { manifest, body: object.body };
}

/** As findManifest; throws SNAPSHOT_DAMAGED if it is not there. */
export async function readManifest(store: ObjectStore, prefix: ActorPrefix, key: string): Promise<ReadManifest> {
  const found = await findManifest(store, prefix, key);
  if (found !== undefined) return found;
  throw new SubstrateError("SNAPSHOT_DAMAGED", `${objectKey(prefix, key)} is missing from the store`);
}

/** All manifests under a prefix of which these are the keys; those that go meanwhile are none. */
export async function manifestsAmong(
  store: ObjectStore,
  prefix: ActorPrefix,
  keys: readonly string[],
): Promise<Manifest[]> {
  const own = objectKey(prefix, "");
  const found: Manifest[] = [];
  for (const key of keys) {
    if (!key.startsWith(own) || !isManifestKey(key.slice(own.length))) continue;
    const read = await findManifest(store, prefix, key.slice(own.length));
    if (read !== undefined) found.push(read.manifest);
  }
  return found;
}

/** Where the packs of a generation are now, relative to the cluster's prefix. */
export function packPlaces({ pages }: Pick<Manifest, "pages">): string[] {
  return (pages?.packs ?? []).map(({ key, at }) => at ?? key);
}

/** By which its files are known where they are fetched to; the pages file by its page table. */
export function digestsOf({ files, pages }: Pick<Manifest, "files" | "pages">): { name: string; sha256?: string }[] {
  return [...files.map(({ name, sha256 }) => ({ name, sha256 })), ...(pages ? [{ name: pagesFile }] : [])];
}

/** What a generation added to the store. */
export function storedBytesOf({ files, pages }: Pick<Manifest, "files" | "pages">): number {
  const whole = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return whole + (pages === undefined ? 0 : pages.storedBytes + pages.index.sizeBytes);
}

export function commitResult(prefix: ActorPrefix, key: string, { manifest, body }: ReadManifest): CommitResult {
  return {
    location: objectKey(prefix, key),
    digest: `sha256:${createHash("sha256").update(body).digest("hex")}`,
    storedBytes: storedBytesOf(manifest) + body.length,
    files: manifest.files,
  };
}
