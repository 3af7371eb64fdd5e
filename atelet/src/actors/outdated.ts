import { asSubstrateError } from "@substrate/lib/errors.ts";
import { type ActorContext } from "./actor-context.ts";
import { type ActorRecord, type Generation } from "./record.ts";

/** What of one actor's state goes as a newer one is in the store: commit, then collect. */
export class Outdated {
  readonly #context: ActorContext;

  constructor(context: ActorContext) {
    this.#context = context;
  }

  /** Whether older generations, parts of replaced ones, or what was set aside are still to be removed. */
  get isCollecting(): boolean {
    const completed = this.#completed();
    if (completed === undefined) return false;
    const { record, generations } = this.#context;
    const hasAside = generations.hasAsideUpTo(completed.generation);
    return this.#generations().length > 0 || record.litter.length > 0 || hasAside;
  }

  /** Whether packs that no generation names may be in the store. Whoever has the actor next removes them, too. */
  get hasPacks(): boolean {
    return this.#completed() !== undefined && this.#context.record.packsToCollect;
  }

  /** A tag of it is still on its way: until it is there, this is the only place that has its state. */
  isTagged({ generation, epoch }: Generation): boolean {
    return this.#context.record.tags.some((tag) => tag.generation === generation && tag.epoch === epoch);
  }

  /** @returns whether all is gone, or nothing may go; else it is to be tried again. */
  async collect(): Promise<boolean> {
    const { generations, log } = this.#context;
    const completed = this.#completed();
    if (completed === undefined) {
      log.warn("older generations are kept: the newest one could not be restored");
      return true;
    }
    const failures: unknown[] = [];
    const remove = async (
      work: () => Promise<void>,
      failure: string,
      fields: Record<string, unknown>,
    ): Promise<void> => {
      try {
        await work();
      } catch (error) {
        failures.push(error);
        log.warn(failure, { ...fields, error });
      }
    };
    for (const older of generations.all().filter((g) => g.generation < completed.generation)) {
      const { generation } = older;
      await remove(() => this.#removeOlder(older), "an older generation could not be removed yet", { generation });
    }
    await remove(
      () => generations.removeAsideUpTo(completed.generation),
      "what is left of a damaged generation could not be removed yet",
      {},
    );
    for (const litter of [...this.#context.record.litter]) {
      await remove(
        () => this.#removeLitter(litter),
        "what is left of a replaced upload could not be removed yet",
        litter,
      );
    }
    return failures.length === 0 && (await this.#collectPacks());
  }

  async #removeOlder(older: Generation): Promise<void> {
    if (this.isTagged(older)) return;
    const { node, record, generations, prefix } = this.#context;
    await generations.evict(older.generation);
    if (!this.#generations().includes(older)) return;
    // of one that was replaced while it was being uploaded parts are there, though no manifest
    if (older.storage.manifest !== "" || older.storage.message !== "") {
      await node.store(record.program.store).collect(prefix, older.generation, older.epoch);
    }
    generations.forget(older.generation);
  }

  async #removeLitter(litter: ActorRecord["litter"][number]): Promise<void> {
    const { node, record, prefix } = this.#context;
    await node.store(record.program.store).collect(prefix, litter.generation, litter.epoch);
    record.litter.splice(record.litter.indexOf(litter), 1);
  }

  /** @returns false if it is to be tried again. */
  async #collectPacks(): Promise<boolean> {
    const { node, record, prefix, log } = this.#context;
    if (!record.packsToCollect) return true;
    try {
      await node.store(record.program.store).collectPacks(prefix, record.grant.epoch);
    } catch (error) {
      log.warn("packs that no generation names could not be removed yet", { error });
      // who holds the higher epoch removes them
      if (asSubstrateError(error).code !== "SUPERSEDED") return false;
    }
    record.packsToCollect = false;
    return true;
  }

  /** The newest in the store, after which older ones may go; not if it could not be restored. */
  #completed(): Generation | undefined {
    const newest = this.#context.generations.all().find(({ storage }) => storage.state === "COMPLETED");
    return newest?.restoreFailures === 0 ? newest : undefined;
  }

  #generations(): Generation[] {
    const { record, generations } = this.#context;
    const completed = this.#completed();
    if (completed === undefined) return [];
    const stored = generations.all().filter(({ storage }) => storage.state === "COMPLETED");
    const kept = stored.slice(0, record.program.history);
    return generations
      .all()
      .filter((one) => one.generation < completed.generation && !kept.includes(one) && !this.isTagged(one));
  }
}
