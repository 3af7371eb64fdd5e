import { asSubstrateError } from "@substrate/lib/errors.ts";
import { manifestKey } from "../store/layout.ts";
import { storedBytesOf } from "../store/manifests.ts";
import { type ActorPrefix } from "../store/snapshots.ts";
import { type Manifest } from "../store/store.ts";
import { type ActorContext } from "./actor-context.ts";
import { type Generation } from "./record.ts";

type Context = Pick<ActorContext, "node" | "record" | "prefix" | "generations" | "log">;

/**
 * Takes what a claimed head names into the record, if it isn't there yet: then it was stored by another node, or before
 * this one forgot the actor, and so were older generations, which a person may go back to and a later upload removes.
 */
export async function learnStored(context: Context, key: string): Promise<void> {
  const { node, record, prefix, generations } = context;
  const manifest = await node.store(record.program.store).manifest(prefix, key);
  const known = generations.get(manifest.generation);
  if (known?.epoch === manifest.epoch) return;
  await generations.replace(fromManifest(manifest, prefix));
  await learnOthers(context, manifest);
}

/**
 * Whether a generation that is lost by what is here is in the store: who stored it ended before that was written down.
 * Throws STORE_UNAVAILABLE.
 */
export async function askStore(
  { node, record, prefix, generations, log }: Context,
  lost: Generation,
): Promise<boolean> {
  const store = node.store(record.program.store);
  const key = manifestKey(lost.generation, lost.epoch);
  if ((await store.head(prefix))?.manifest === key) {
    try {
      await generations.replace(fromManifest(await store.manifest(prefix, key), prefix));
      return true;
    } catch (error) {
      if (asSubstrateError(error).code !== "SNAPSHOT_DAMAGED") throw error;
      log.error("a snapshot is damaged on the node, and in the store, too", { generation: lost.generation, error });
    }
  }
  lost.storage = { ...lost.storage };
  delete lost.storage.unasked;
  return false;
}

async function learnOthers({ node, record, prefix, generations, log }: Context, head: Manifest): Promise<void> {
  let stored: Manifest[];
  try {
    stored = await node.store(record.program.store).manifests(prefix);
  } catch (error) {
    // The newest state is known: for want of older ones nobody waits.
    log.warn("older generations in the store are not known, nor removed", { error });
    return;
  }
  // Of one number, that of the higher epoch is what the actor went on from.
  stored.sort((a, b) => b.generation - a.generation || b.epoch - a.epoch);
  for (const manifest of stored) {
    const { generation, epoch } = manifest;
    const known = generations.get(generation);
    if (known?.epoch === epoch || epoch >= record.grant.epoch) continue;
    const isOlder = generation < head.generation && epoch <= head.epoch;
    if (isOlder && (known === undefined || known.storage.state === "LOST")) {
      await generations.replace(fromManifest(manifest, prefix));
    } else if (!record.litter.some((one) => one.generation === generation && one.epoch === epoch)) {
      record.litter.push({ generation, epoch });
    }
  }
  // Only a person goes back to them: they may have been given up before.
  record.floor = Math.max(record.floor, head.generation - 1);
}

function fromManifest(manifest: Manifest, prefix: ActorPrefix): Generation {
  const key = manifestKey(manifest.generation, manifest.epoch);
  return {
    generation: manifest.generation,
    epoch: manifest.epoch,
    revision: manifest.revision,
    imageDigest: manifest.imageDigest,
    runtime: manifest.sandbox.runtime,
    fidelity: manifest.fidelity,
    envDigest: manifest.envDigest ?? "",
    createdAtMs: Date.parse(manifest.createdAt),
    restoreFailures: 0,
    sizeBytes: manifest.sizeBytes,
    storage: {
      state: "COMPLETED",
      manifest: key,
      location: `${prefix.clusterUid}/${prefix.namespaceUid}/${prefix.actorUid}/${key}`,
      digest: "",
      storedBytes: storedBytesOf(manifest),
      completedAtMs: Date.parse(manifest.createdAt),
      message: "",
      reason: "",
    },
  };
}
