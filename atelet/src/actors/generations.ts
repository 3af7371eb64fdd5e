import { type GenerationFolder, type GenerationRecord, type PageFiles } from "../generations/folder.ts";
import { asSubstrateError } from "@substrate/lib/errors.ts";
import { dirname, join } from "node:path";
import { type Digest, type Seal, sealOf } from "../generations/seal.ts";
import { type LocalPages } from "../pages/pages.ts";
import { pagesFile } from "../store/layout.ts";
import { type KeptStacks, type Layer, type VolumeStack, withFlattened } from "../volumes/stack.ts";
import { fromAside, fromLocal, isDamaged, lossOf } from "./generation-facts.ts";
import { type ActorRecord, type Generation } from "./record.ts";

export interface GenerationsOptions {
  /** Why the content of volumes, as it is named by then, is not here any more, or undefined. */
  volumesDamage: (stacks: () => readonly VolumeStack[]) => Promise<string | undefined>;
  /** Called after files were removed: the layers that they named may go, too. */
  evicted: () => void;
}

/**
 * One actor's generations: what its record says of them, and which files are here. Files that are being read (a
 * background load, an upload) are pinned and go only when they are let go (R19).
 */
export class Generations {
  readonly #record: ActorRecord;
  readonly #folder: GenerationFolder;
  readonly #options: GenerationsOptions;
  readonly #local = new Map<number, GenerationRecord>();
  readonly #pins = new Map<number, number>();
  readonly #doomed = new Set<number>();
  /** Why they are to be set aside when nobody reads them any more. */
  readonly #unusable = new Map<number, string>();
  readonly #distrusted = new Set<number>();
  /** Whose files are being removed. */
  readonly #leaving = new Map<number, Promise<void>>();
  /** What is recorded of a generation is rewritten by one after the other: each keeps what the others have changed. */
  #rewriting: Promise<void> = Promise.resolve();

  constructor(record: ActorRecord, folder: GenerationFolder, options: GenerationsOptions) {
    this.#record = record;
    this.#folder = folder;
    this.#options = options;
  }

  /**
   * Joins the record with the files found after a restart: a generation whose rename happened before a crash counts,
   * also if the record does not know it yet; one that is neither in the store nor usable here is LOST.
   * @returns names of leftovers that were removed, and where what can't be read was put.
   */
  async load(): Promise<{ removed: string[]; aside: string[] }> {
    const { records, removed, aside } = await this.#folder.load();
    for (const local of records) {
      this.#local.set(local.generation, local);
      const known = this.get(local.generation);
      if (known === undefined) this.#insert(fromLocal(local));
      else if (known.epoch !== local.epoch) await this.evict(local.generation);
    }
    for (const one of this.#folder.aside.all()) {
      if (this.get(one.generation) === undefined) this.#insert(fromAside(one, this.#record));
    }
    for (const generation of this.all()) {
      const here = this.local(generation.generation) !== undefined;
      if (generation.storage.state === "PENDING" && !here) this.#loseMissing(generation);
      // it was to be set aside when the last atelet ended
      else if (here && isDamaged(generation)) await this.setAside(generation, generation.storage.message);
    }
    return { removed, aside };
  }

  #loseMissing(generation: Generation): void {
    const aside = this.#folder.aside.all().find((one) => one.generation === generation.generation);
    const what = aside === undefined ? "its files are no longer on the node" : lossOf(aside.why);
    this.lose(generation, `${what} and it was not in the store yet`, "SNAPSHOT_DAMAGED");
  }

  /** Newest first. */
  all(): readonly Generation[] {
    return this.#record.generations;
  }

  get(generation: number): Generation | undefined {
    return this.#record.generations.find((g) => g.generation === generation);
  }

  newest(): Generation | undefined {
    return this.#record.generations[0];
  }

  /** Newest first: those that a resume may use by itself. */
  usable(): Generation[] {
    return this.#record.generations.filter(
      (generation) =>
        generation.generation > this.#record.floor &&
        generation.storage.state !== "FAILED" &&
        this.restorable(generation),
    );
  }

  /** Whether there is something to restore it from: files here, or data in the store. */
  restorable({ generation, storage }: Generation): boolean {
    if (storage.state === "LOST") return false;
    return storage.state === "COMPLETED" || this.local(generation) !== undefined;
  }

  /** The newest that would be gone on from, were it not damaged. */
  damaged(): Generation | undefined {
    return this.all().find((generation) => generation.generation > this.#record.floor && isDamaged(generation));
  }

  /** Its files on this node. Two nodes may both have made a generation of this number: the epoch must match too. */
  local(generation: number): GenerationRecord | undefined {
    const local = this.#local.get(generation);
    return local?.epoch === this.get(generation)?.epoch ? local : undefined;
  }

  /** The folder of all its files. */
  home(generation: number): string {
    return dirname(this.path(generation));
  }

  path(generation: number): string {
    return this.#folder.path(generation);
  }

  /** Where the page table of its image is, and its page index once it is stored. */
  pageFiles(generation: number): PageFiles {
    return this.#folder.pageFiles(generation);
  }

  /** As pageFiles, of what is fetched since `begin`. */
  newPageFiles(generation: number): PageFiles {
    return this.#folder.newPageFiles(generation);
  }

  /** Memory images that are here, whose pages need not be fetched again. */
  images(): LocalPages[] {
    return [...this.#local.values()]
      .filter(({ files }) => files.some(({ name }) => name === pagesFile))
      .map(({ generation }) => ({ file: join(this.path(generation), pagesFile), ...this.pageFiles(generation) }));
  }

  /** An empty folder for its image. A copy of it that is on its way out would take the new one with it. */
  async begin(generation: number): Promise<string> {
    await this.#leaving.get(generation);
    return this.#folder.begin(generation);
  }

  abandon(generation: number): Promise<void> {
    return this.#folder.abandon(generation);
  }

  /** Commits what was written since `begin`; the newest generation from now on. */
  async commit(written: Omit<GenerationRecord, "format" | "files" | "seal">): Promise<Generation> {
    const local = await this.#folder.commit(written);
    const generation = fromLocal(local);
    this.#local.set(local.generation, local);
    this.#insert(generation);
    return generation;
  }

  /** A generation that was fetched from the store into `begin`'s folder. */
  async commitFetched(
    generation: Generation,
    saved: Pick<GenerationRecord, "rootfsTar" | "volumes">,
    digests: readonly Digest[],
  ): Promise<void> {
    const { generation: number, epoch, revision, imageDigest, runtime, fidelity, envDigest, createdAtMs } = generation;
    const written = { generation: number, epoch, revision, imageDigest, runtime, fidelity, envDigest, createdAtMs };
    this.#local.set(number, await this.#folder.commit({ ...written, ...saved }, digests));
    this.#distrusted.delete(number);
    if (this.get(generation.generation) === undefined) this.#insert(generation);
  }

  /** Why it cannot be restored from what is here, or undefined. */
  async damage(local: GenerationRecord): Promise<string | undefined> {
    const { generation } = local;
    const found = await this.#check(local);
    if ("damage" in found) return found.damage;
    this.#distrusted.delete(generation);
    if (found.seal !== local.seal) await this.#rewrite(generation, (now) => ({ ...now, ...found }));
    return this.#options.volumesDamage(() => this.local(generation)?.volumes ?? []);
  }

  /** Of one that isn't stored, what can't be known counts as good: there is nothing else. */
  async #check(local: GenerationRecord): Promise<{ damage: string } | { seal: Seal | undefined }> {
    const { generation, seal } = local;
    try {
      return await this.#folder.check(local, { distrusted: this.#distrusted.has(generation) });
    } catch (thrown) {
      const { code, message } = asSubstrateError(thrown);
      if (code !== "SNAPSHOT_DAMAGED" && code !== "INTERNAL") throw thrown;
      return this.get(generation)?.storage.state === "COMPLETED" ? { damage: message } : { seal };
    }
  }

  /** It did not come to life as it should: its files are read, and compared with what was stored, before the next try. */
  distrust(generation: number): void {
    if (this.local(generation)?.seal !== undefined) this.#distrusted.add(generation);
  }

  /** How its files look, to be sealed with the digests that are taken of them from now on. */
  async stamps(generation: number): Promise<ReadonlyMap<string, string>> {
    const local = this.local(generation);
    return local === undefined ? new Map<string, string>() : this.#folder.stamps(local);
  }

  /** Its content is known from now on, and so a damage of it. */
  async seal(generation: number, stamps: ReadonlyMap<string, string>, digests: readonly Digest[]): Promise<void> {
    const seal = await sealOf(stamps, digests);
    await this.#rewrite(generation, (local) => ({ ...local, seal }));
  }

  /** The content of volumes that generations here name. */
  frozen(): VolumeStack[] {
    return [...this.#local.values()].flatMap(({ volumes }) => volumes);
  }

  /** The content of volumes that is kept with what was set aside; nobody makes one layer of it. */
  kept(): KeptStacks {
    const all = this.#folder.aside.all();
    return all.some(({ volumes }) => volumes === undefined) ? "unknown" : all.flatMap(({ volumes = [] }) => volumes);
  }

  /** Writes down that one layer has taken the place of the bottom of a volume's stack, wherever it is. */
  async rewriteFrozen(volume: string, flattened: readonly Layer[], into: Layer): Promise<void> {
    for (const number of [...this.#local.keys()]) {
      await this.#rewrite(number, (local) => {
        const volumes = local.volumes.map((stack) =>
          stack.name === volume
            ? { ...stack, layers: withFlattened(stack.layers, flattened, into) ?? stack.layers }
            : stack,
        );
        return volumes.every((stack, index) => stack.layers === local.volumes[index]?.layers)
          ? local
          : { ...local, volumes };
      });
    }
  }

  /** A folder of its own beside a generation's, for what is made of it; a restart removes it. */
  scratch(generation: number): string {
    return this.#folder.scratch(generation);
  }

  /** What a claimed head names, in the place of another generation of the same number that was made here and is lost. */
  async replace(generation: Generation): Promise<void> {
    await this.evict(generation.generation);
    this.forget(generation.generation);
    this.#insert(generation);
  }

  /** @param reason SNAPSHOT_DAMAGED: nothing has come in its place. */
  lose(generation: Generation, message: string, reason: "" | "SNAPSHOT_DAMAGED" = ""): void {
    const isOpen = reason !== "" && generation.storage.state === "PENDING";
    generation.storage = { ...generation.storage, state: "LOST", message, reason };
    if (isOpen) generation.storage.unasked = true;
    else delete generation.storage.unasked;
  }

  /**
   * What is here of it is damaged, and nowhere else is anything: it is lost, and its files are kept as evidence, or as
   * soon as nobody reads them. Throws if they can't be given another name: then they stay where they are.
   */
  async setAside(generation: Generation, damage: string): Promise<void> {
    const number = generation.generation;
    if (!isDamaged(generation)) {
      this.lose(generation, `${lossOf(damage)} and it was not in the store yet`, "SNAPSHOT_DAMAGED");
    }
    if (this.#pins.has(number)) {
      this.#unusable.set(number, damage);
      return;
    }
    this.#unusable.delete(number);
    await this.#inTurn(() => this.#folder.aside.put(number, damage, generation.epoch));
    this.#local.delete(number);
    this.#distrusted.delete(number);
  }

  /** Where what is left of it is, or will be; undefined if nothing is. */
  asidePath(generation: number): string | undefined {
    return this.isSetAside(generation) ? this.#folder.aside.path(generation) : undefined;
  }

  isSetAside(generation: number): boolean {
    return this.#unusable.has(generation) || this.#folder.aside.has(generation);
  }

  /** Whether something is kept of this generation or an older one. */
  hasAsideUpTo(generation: number): boolean {
    return this.#folder.aside.hasUpTo(generation);
  }

  async removeAsideUpTo(generation: number): Promise<void> {
    if (!this.hasAsideUpTo(generation)) return;
    await this.#folder.aside.removeUpTo(generation);
    this.#options.evicted();
  }

  /** Keeps the files until the returned function is called. */
  pin(generation: number): () => Promise<void> {
    this.#pins.set(generation, (this.#pins.get(generation) ?? 0) + 1);
    let pinned = true;
    return async () => {
      if (!pinned) return;
      pinned = false;
      const left = (this.#pins.get(generation) ?? 1) - 1;
      if (left > 0) this.#pins.set(generation, left);
      else {
        this.#pins.delete(generation);
        await this.#letGo(generation);
      }
    };
  }

  async #letGo(number: number): Promise<void> {
    const damage = this.#unusable.get(number);
    const generation = this.get(number);
    if (damage !== undefined && generation !== undefined) await this.setAside(generation, damage);
    else if (this.#doomed.has(number)) await this.evict(number);
  }

  /** Whether its files are here, and nobody reads them. */
  isAtRest(generation: number): boolean {
    return this.local(generation) !== undefined && !this.#pins.has(generation);
  }

  /** Removes the files from the node, or as soon as nobody reads them. */
  async evict(generation: number): Promise<void> {
    if (this.#pins.has(generation)) {
      this.#doomed.add(generation);
      return;
    }
    this.#doomed.delete(generation);
    this.#local.delete(generation);
    this.#distrusted.delete(generation);
    const removed = this.#rewriting.then(() => this.#folder.remove(generation));
    const left = removed.then(
      () => undefined,
      () => undefined,
    );
    this.#leaving.set(generation, left);
    try {
      await removed;
    } finally {
      if (this.#leaving.get(generation) === left) this.#leaving.delete(generation);
    }
    this.#options.evicted();
  }

  /** Forgets a generation whose files and data are gone. */
  forget(generation: number): void {
    this.#record.generations = this.#record.generations.filter((g) => g.generation !== generation);
  }

  /** @param change returns its argument if there is nothing to change. */
  #rewrite(generation: number, change: (local: GenerationRecord) => GenerationRecord): Promise<void> {
    return this.#inTurn(async () => {
      const local = this.#local.get(generation);
      const changed = local && change(local);
      if (changed === undefined || changed === local) return;
      await this.#folder.rewrite(changed);
      this.#local.set(generation, changed);
    });
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const turn = this.#rewriting.then(work);
    this.#rewriting = turn.catch(() => undefined);
    return turn;
  }

  #insert(generation: Generation): void {
    this.#record.generations = [generation, ...this.#record.generations].sort((a, b) => b.generation - a.generation);
  }
}
