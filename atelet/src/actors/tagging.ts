import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { removeFolder } from "../node-files.ts";
import { copied } from "../store/object-snapshots.ts";
import { type Stored } from "../store/snapshots.ts";
import { type ActorContext } from "./actor-context.ts";
import { damagedError, loseDamaged } from "./damaged.ts";
import { type Digests } from "./digests.ts";
import { manifestOf } from "./manifest.ts";
import { type Generation, type StoredPrefix } from "./record.ts";
import { copyStored, ownerOf, transferDir } from "./stored-copy.ts";

export interface TaggingOptions extends ActorContext {
  digests: Digests;
  /** Generations that were kept for a tag may go. */
  released: () => void;
}

/**
 * One actor's generations on their way under the prefixes of Snapshot objects. Which one a tag means is recorded when it
 * is decided: a try after an outage, or of the next atelet, copies the same, and until then it stays.
 */
export class Tagging {
  readonly #options: TaggingOptions;

  constructor(options: TaggingOptions) {
    this.#options = options;
  }

  /** What was decided for this tag, if that generation can still be had. */
  decided(uid: string): Generation | undefined {
    const { record, generations } = this.#options;
    const tag = record.tags.find((one) => one.uid === uid);
    const generation = tag && generations.get(tag.generation);
    if (generation === undefined || generation.epoch !== tag?.epoch) return undefined;
    return generations.restorable(generation) ? generation : undefined;
  }

  decide(uid: string, { generation, epoch }: Generation): void {
    const { record } = this.#options;
    record.tags = [...record.tags.filter((one) => one.uid !== uid), { uid, generation, epoch }];
  }

  async forget(uid: string): Promise<void> {
    const { record, save, released } = this.#options;
    if (record.tags.every((one) => one.uid !== uid)) return;
    record.tags = record.tags.filter((one) => one.uid !== uid);
    released();
    await save({ durable: false });
  }

  /** Within the store, if it is there already; else from the files on this node. */
  async copy(generation: Generation, target: StoredPrefix): Promise<Stored> {
    const { log } = this.#options;
    const startMs = performance.now();
    const stored = (await this.#copyStored(generation, target)) ?? (await this.#upload(generation, target));
    log.info("tag stored", {
      snapshot: target.name,
      generation: generation.generation,
      storedBytes: stored.storedBytes,
      uploadMs: Math.round(performance.now() - startMs),
    });
    return stored;
  }

  async #copyStored({ generation, storage }: Generation, target: StoredPrefix): Promise<Stored | undefined> {
    const { node, record, prefix, generations } = this.#options;
    if (storage.state !== "COMPLETED") return undefined;
    try {
      return await copyStored(node, { store: record.program.store, prefix, key: storage.manifest }, target);
    } catch (error) {
      // The program's store may be another one than the generation's was.
      if (asSubstrateError(error).code !== "SNAPSHOT_DAMAGED" || generations.local(generation) === undefined)
        throw error;
      return undefined;
    }
  }

  async #upload(generation: Generation, target: StoredPrefix): Promise<Stored> {
    const { node, record, generations, volumes, digests } = this.#options;
    const number = generation.generation;
    const local = generations.local(number);
    if (local === undefined) {
      throw new SubstrateError("SNAPSHOT_DAMAGED", `generation ${number} is neither on this node nor in the store`);
    }
    const unpin = generations.pin(number);
    const packed = transferDir(node, target);
    try {
      await digests.ready(number);
      const damage = await generations.damage(local);
      if (damage !== undefined) {
        await loseDamaged(this.#options, generation, damage);
        throw damagedError(this.#options, generation);
      }
      const { manifest } = copied(manifestOf(record, generation, local), ownerOf(target));
      const hasVolumes = local.volumes.length > 0;
      if (hasVolumes) await volumes.pack(() => generations.local(number)?.volumes ?? [], packed);
      const store = node.store(target.store);
      await store.commit(target.prefix, manifest, {
        dirs: [generations.path(number), ...(hasVolumes ? [packed] : [])],
        pages: { table: generations.pageFiles(number).table, bases: [] },
      });
      const stored = await store.stored(target.prefix);
      if (stored !== undefined) return stored;
      throw new SubstrateError("INTERNAL", `Snapshot ${target.name} was stored and is not there`);
    } finally {
      await removeFolder(packed);
      await unpin();
    }
  }
}
