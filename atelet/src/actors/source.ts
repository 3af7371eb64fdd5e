import { readFile } from "node:fs/promises";
import { type Phases } from "@substrate/lib/phases.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { KeptPages } from "../generations/kept-pages.ts";
import { noVolumes } from "../volumes/stack.ts";
import { type ActorContext } from "./actor-context.ts";
import { damagedError, loseDamaged } from "./damaged.ts";
import { claimDownload } from "./disk-claims.ts";
import { isDamaged } from "./generation-facts.ts";
import { askStore, learnStored } from "./learn-stored.ts";
import { withOlder } from "./older.ts";
import { pagesHere } from "./page-bases.ts";
import { nextStart } from "./next-start.ts";
import { type Generation } from "./record.ts";
import { chosenGeneration, type StartFrom } from "./start-from.ts";
import { Unpacking } from "./unpacking.ts";
import { borrowBytes, follow, largeFile } from "./unwritten.ts";

export interface SourceOptions extends ActorContext {
  phases: Phases;
  /** Told when a generation is being fetched. */
  fetching?: (generation: Generation) => void;
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
        if (generation.storage.state === "PENDING" || isDamaged(generation)) {
          generations.lose(generation, `epoch ${before?.epoch ?? epoch} went on from another state of this actor`);
        }
      }
      record.volumes = noVolumes();
      await save({ durable: true });
    }
    // It ran elsewhere since: there its program has lost the connections that wait for it here.
    if (!localIsNewest) await node.network.giveUp(record.actor.uid);
    const head = await store.claim(prefix, epoch);
    if (head.manifest !== null) await learnStored(options, head.manifest);
    record.claim = { ...record.claim, state: "done" };
    await save({ durable: true });
    log.info("head claimed", { epoch, generation: head.generation, localIsNewest });
  });
}

/**
 * What to restore, with its files on this node; undefined for a cold start. A damaged local copy gives way to the stored
 * one; one that isn't stored is lost, and the generation before it counts, unless a person chose it. Throws
 * SNAPSHOT_DAMAGED if there is none: to begin anew without it is a person's choice.
 */
export async function findSource(
  options: SourceOptions,
  from?: Extract<StartFrom, { kind: "generation" }>,
): Promise<Generation | undefined> {
  const { generations, phases } = options;
  if (from !== undefined) {
    const chosen = chosenGeneration(options, from.generation);
    refuseForeign(options, chosen);
    return bringHere(options, chosen);
  }
  for (;;) {
    const next = nextStart(options);
    const lost = generations.damaged();
    const newest = next.kind === "generation" ? next.generation.generation : 0;
    if (lost?.storage.unasked === true && lost.generation > newest) {
      if (!(await phases.run("claim", () => askStore(options, lost)))) sayLost(options, lost);
      await options.save({ durable: false });
      continue;
    }
    if (next.kind === "damaged") throw damagedError(options, next.generation);
    if (next.kind !== "generation") return undefined;
    const candidate = next.generation;
    refuseForeign(options, candidate);
    if ((await fetchOrDamage(options, candidate)) === undefined) return candidate;
  }
}

function sayLost({ record }: SourceOptions, { generation, storage }: Generation): void {
  record.crash = { message: `generation ${generation} was lost: ${storage.message}`, timeMs: Date.now() };
}

/**
 * Of a boot: whose volumes it begins with, with their files on this node; undefined: with those that are here, of which
 * what is damaged is left out.
 */
export async function findVolumes(options: SourceOptions): Promise<Generation | undefined> {
  const { record, generations, volumes, log } = options;
  if (record.program.volumeMounts.length === 0) return undefined;
  for (const newest of generations.usable()) {
    const { base } = record.volumes;
    if (base.generation === newest.generation && base.epoch === newest.epoch) break;
    if ((await fetchOrDamage(options, newest)) === undefined) return newest;
  }
  const damage = await volumes.damage(() => record.volumes.stacks);
  if (damage !== undefined) {
    log.error("a cold start begins with what is left of the volumes", { damage });
    record.volumes = { ...record.volumes, stacks: await volumes.whole(record.volumes.stacks) };
  }
  return undefined;
}

async function bringHere(options: SourceOptions, generation: Generation): Promise<Generation> {
  const damage = await fetchOrDamage(options, generation);
  if (damage === undefined) return generation;
  await options.save({ durable: false });
  throw damagedError(options, generation);
}

/** Brings a generation's files here, if they aren't. @returns what is damaged and cannot be had elsewhere: it is lost. */
async function fetchOrDamage(options: SourceOptions, generation: Generation): Promise<string | undefined> {
  const { generations } = options;
  const local = generations.local(generation.generation);
  const damage = local === undefined ? "not here" : await generations.damage(local);
  if (damage === undefined) return undefined;
  if (generation.storage.state !== "COMPLETED") {
    await loseDamaged(options, generation, damage);
    return damage;
  }
  if (local !== undefined) await giveUpCopy(options, generation, damage);
  await fetch(options, generation);
  return undefined;
}

/**
 * Reads the local copy of a stored generation if the machine was started anew since its content was known; a damaged
 * one goes at once. Nothing is read of one that is known to be good.
 */
export async function verifyCopy(options: SourceOptions, generation: Generation): Promise<void> {
  const { generations, save } = options;
  const local = generations.local(generation.generation);
  if (local?.seal === undefined || generation.storage.state !== "COMPLETED") return;
  const unpin = generations.pin(generation.generation);
  let damage: string | undefined;
  try {
    damage = await generations.damage(local);
  } finally {
    await unpin();
  }
  if (damage === undefined) return;
  await giveUpCopy(options, generation, damage);
  await save({ durable: false });
}

async function giveUpCopy({ generations, log }: SourceOptions, generation: Generation, damage: string): Promise<void> {
  log.error("a local snapshot is damaged", { generation: generation.generation, damage });
  generation.storage.message = `the copy on its node was damaged (${damage}) and removed; the stored one is used`;
  await generations.evict(generation.generation);
}

/** A memory image is read only by the runtime build that wrote it, and holds the program that it was made from. */
function refuseForeign(options: SourceOptions, { generation, fidelity, runtime, revision }: Generation): void {
  const { node, record } = options;
  if (fidelity !== "Memory") return;
  if (runtime !== node.runtimeBuild) {
    throw new SubstrateError(
      "RESTORE_FAILED",
      `generation ${generation} of actor ${nameOf(options)} was written by runsc ${runtime}, and ` +
        `this node has ${node.runtimeBuild}: only the build that wrote a memory image can read it`,
    );
  }
  if (revision !== record.program.revision) {
    throw new SubstrateError(
      "RESTORE_FAILED",
      `generation ${generation} of actor ${nameOf(options)} holds the memory of revision ${revision} of Template ` +
        `${record.program.templateName}, and it is to run revision ${record.program.revision}: a memory image goes on ` +
        `only under its own revision; "kubectl ate resume ${record.actor.name} --boot" starts the other one cold`,
    );
  }
}

async function fetch(options: SourceOptions, source: Generation): Promise<void> {
  const { node, record, prefix, generations, phases, files, log } = options;
  await phases.run("download", async () => {
    const what = `generation ${source.generation} of actor ${nameOf(options)}`;
    const claim = await claimDownload(node, source.sizeBytes, what);
    const loan = await borrowBytes(node, source.sizeBytes, log).catch((error: unknown) => {
      claim.end();
      throw error;
    });
    options.fetching?.(source);
    let followed = false;
    const { reuse, release } = pagesHere(options);
    try {
      const dir = await generations.begin(source.generation);
      const pages = { ...generations.newPageFiles(source.generation), reuse };
      const key = source.storage.manifest;
      const unpacking = new Unpacking(options, source, dir);
      const manifest = await unpacking.during((began) =>
        node.store(record.program.store).download(prefix, key, { dir, pages, lent: loan !== undefined, began }),
      );
      if (loan !== undefined && source.fidelity !== "Data") {
        followed = true;
        follow(node, largeFile(generations.path(source.generation), source.fidelity), loan);
      }
      if (manifest.pages) await keepFetched(options, files.stored, source);
    } catch (thrown) {
      await generations.abandon(source.generation);
      throw await withOlder(options, source, thrown);
    } finally {
      claim.end();
      if (!followed) loan?.return();
      await release();
    }
  });
}

/** The next generation is stored by what differs from this one; without, it is stored whole. */
async function keepFetched({ generations, log }: SourceOptions, dir: string, source: Generation): Promise<void> {
  const { generation, storage } = source;
  const { table, index } = generations.pageFiles(generation);
  try {
    await new KeptPages(dir).keep(storage.manifest, table, await readFile(index));
  } catch (error) {
    log.warn("the page table of a fetched snapshot could not be kept", { generation, error });
  }
}

function nameOf({ record }: SourceOptions): string {
  return `${record.actor.namespace}/${record.actor.name}`;
}
