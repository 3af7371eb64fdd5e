import { rm } from "node:fs/promises";
import { join } from "node:path";
import { type Logger } from "@substrate/lib/log.ts";
import { type Phases } from "@substrate/lib/phases.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorPrefix } from "../store/snapshots.ts";
import { type Manifest } from "../store/store.ts";
import { type ActorVolumes, volumeFile } from "../volumes/actor-volumes.ts";
import { noVolumes } from "../volumes/stack.ts";
import { type Generations } from "./generations.ts";
import { type NodeContext } from "./node-context.ts";
import { type ActorRecord, type Generation } from "./record.ts";

export interface SourceOptions {
  node: NodeContext;
  record: ActorRecord;
  prefix: ActorPrefix;
  generations: Generations;
  volumes: ActorVolumes;
  phases: Phases;
  log: Logger;
  save: (options: { durable: boolean }) => Promise<void>;
}

/**
 * design.md §7 "Local state": before an epoch that doesn't follow the local one may run, it claims the head; what the
 * claimed head names is restored, unless it is not newer than what this node has under an epoch at least as high.
 */
export async function claimHead(options: SourceOptions): Promise<void> {
  const { node, record, prefix, generations, phases, save, log } = options;
  if (record.claim.state !== "needed") return;
  const store = node.store(record.program.store);
  const { epoch } = record.grant;
  await phases.run("claim", async () => {
    const before = await store.head(prefix);
    // A head of our own epoch: an earlier try got as far as the claim; then its decision is in the record already.
    const stored = generations.all().find(({ storage }) => storage.state === "COMPLETED");
    if (before === undefined && stored !== undefined) {
      throw new SubstrateError(
        "STORE_UNAVAILABLE",
        `store ${record.program.store} has nothing of actor ${nameOf(options)}, though generation ${stored.generation} ` +
          `was stored there: is another or an unmounted folder in its place?`,
      );
    }
    // No head: nobody else ever ran, as every epoch that doesn't follow its own node's claims one.
    const localIsNewest = (before?.epoch ?? 0) <= record.claim.priorEpoch;
    if (!localIsNewest && before?.epoch !== epoch) {
      for (const generation of generations.all()) {
        if (generation.storage.state === "PENDING") {
          generations.lose(generation, `epoch ${before?.epoch ?? epoch} went on from another state of this actor`);
        }
      }
      record.volumes = noVolumes();
      await save({ durable: true });
    }
    const head = await store.claim(prefix, epoch);
    if (head.manifest !== null) await learn(options, head.manifest);
    record.claim = { ...record.claim, state: "done" };
    await save({ durable: true });
    log.info("head claimed", { epoch, generation: head.generation, localIsNewest });
  });
}

/** The newest generation that can be restored, with its files on this node; undefined for a cold start. */
export async function findSource(options: SourceOptions): Promise<Generation | undefined> {
  const { node, generations, save, log } = options;
  for (const candidate of generations.usable()) {
    if (candidate.fidelity === "Memory" && candidate.runtime !== node.runtimeBuild) {
      throw new SubstrateError(
        "RESTORE_FAILED",
        `generation ${candidate.generation} of actor ${nameOf(options)} was written by runsc ${candidate.runtime}, and ` +
          `this node has ${node.runtimeBuild}: only the build that wrote a memory image can read it`,
      );
    }
    const local = generations.local(candidate.generation);
    const damage = local === undefined ? "not here" : await generations.damage(local);
    if (damage === undefined) return candidate;
    if (local !== undefined) {
      log.error("a local snapshot is damaged", { generation: candidate.generation, damage });
      await generations.evict(candidate.generation);
    }
    if (candidate.storage.state === "COMPLETED") {
      await fetch(options, candidate);
      return candidate;
    }
    generations.lose(candidate, `its files on the node are damaged (${damage}) and it was not in the store yet`);
    options.record.crash = {
      message: `generation ${candidate.generation} was lost: ${damage}`,
      timeMs: Date.now(),
    };
    await save({ durable: false });
  }
  return undefined;
}

async function fetch(options: SourceOptions, source: Generation): Promise<void> {
  const { node, record, prefix, generations, volumes, phases } = options;
  await phases.run("download", async () => {
    const dir = await generations.begin(source.generation);
    try {
      const manifest = await node.store(record.program.store).download(prefix, source.storage.manifest, dir);
      const packed = (manifest.volumes ?? []).map(({ name }) => ({ name, path: join(dir, volumeFile(name)) }));
      await volumes.unpack(packed, async (stacks) => {
        for (const { path } of packed) await rm(path);
        await generations.commitFetched(source, { rootfsTar: manifest.rootfsTar === true, volumes: stacks });
      });
    } catch (error) {
      await generations.abandon(source.generation);
      throw error;
    }
  });
}

/** Takes what the head names into the record, if it isn't there yet. */
async function learn({ node, record, prefix, generations }: SourceOptions, key: string): Promise<void> {
  const manifest = await node.store(record.program.store).manifest(prefix, key);
  const known = generations.get(manifest.generation);
  if (known?.epoch !== manifest.epoch) await generations.replace(fromManifest(manifest, key, prefix));
}

function fromManifest(manifest: Manifest, key: string, prefix: ActorPrefix): Generation {
  return {
    generation: manifest.generation,
    epoch: manifest.epoch,
    revision: manifest.revision,
    imageDigest: manifest.imageDigest,
    runtime: manifest.sandbox.runtime,
    fidelity: manifest.fidelity,
    envDigest: "",
    createdAtMs: Date.parse(manifest.createdAt),
    restoreFailures: 0,
    sizeBytes: manifest.sizeBytes,
    storage: {
      state: "COMPLETED",
      manifest: key,
      location: `${prefix.clusterUid}/${prefix.namespaceUid}/${prefix.actorUid}/${key}`,
      digest: "",
      storedBytes: manifest.sizeBytes,
      completedAtMs: Date.parse(manifest.createdAt),
      message: "",
    },
  };
}

function nameOf({ record }: SourceOptions): string {
  return `${record.actor.namespace}/${record.actor.name}`;
}
