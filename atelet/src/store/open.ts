import { SubstrateError } from "@substrate/lib/errors.ts";
import { parseMarker } from "./documents.ts";
import { FileStore } from "./file.ts";
import { S3Thread } from "./s3/thread.ts";
import { type StoreSettings } from "./settings.ts";
import { type ObjectStore } from "./store.ts";

/** At the store's root: whose snapshots it holds. */
const markerKey = "substrate-store.json";

/** Opens a store of the installer's configuration. Throws STORE_UNAVAILABLE if it can't be used now. */
export async function openStore(settings: StoreSettings): Promise<ObjectStore & { close(): Promise<void> }> {
  return settings.kind === "bucket" ? S3Thread.open(settings) : FileStore.open(settings.path);
}

/**
 * Marks a store as this cluster's, by a conditional write. Idempotent. Throws STORE_FOREIGN if another cluster has it:
 * two clusters in one store would collect each other's snapshots.
 *
 * @param url only for the message.
 */
export async function claimStore(store: ObjectStore, clusterUid: string, url: string): Promise<void> {
  const body = Buffer.from(JSON.stringify({ clusterUid }));
  if ((await store.put(markerKey, body, { ifNoneMatch: "*" })) !== undefined) return;
  const present = await store.get(markerKey);
  if (!present) throw new SubstrateError("STORE_UNAVAILABLE", `${markerKey} in ${url} comes and goes; try again`);
  const owner = parseMarker(`${url}/${markerKey}`, present.body).clusterUid;
  if (owner === clusterUid) return;
  throw new SubstrateError(
    "STORE_FOREIGN",
    `the store ${url} belongs to cluster ${owner}, this is ${clusterUid}: configure another folder or prefix, ` +
      `or, if that cluster is gone for good, delete ${markerKey} in it`,
  );
}
