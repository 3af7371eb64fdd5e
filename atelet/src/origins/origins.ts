import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type LimitFunction } from "p-limit";
import { type DiskClaim } from "../disk/contract.ts";
import { type Removable } from "../disk/removal.ts";
import { type LocalPages } from "../pages/pages.ts";
import { type Digest, type FileChecks, sealOf } from "../generations/seal.ts";
import { pagesFile } from "../store/layout.ts";
import { digestsOf } from "../store/manifests.ts";
import { type ActorPrefix, type Committed, type SnapshotStore } from "../store/snapshots.ts";
import { type Manifest } from "../store/store.ts";
import { volumeFile } from "../volumes/actor-volumes.ts";
import { unpackFolder } from "../volumes/archive.ts";
import { type OriginFacts, OriginFolder, type OriginRecord } from "./origin-folder.ts";
import { UnfitOrigins } from "./unfit.ts";

/** Unused ones stay this long, and the newest KEEP of them for ever: somebody may start from them again. */
const KEEP_MS = 600_000;
const KEEP = 8;
const SWEEP_EVERY_MS = 60_000;
/** Of how many a download may take pages. */
const REUSED = 3;

/** The prefix of a Snapshot object: where it is, and its <namespace>/<name> for messages. */
export interface OriginSource {
  prefix: ActorPrefix;
  name: string;
  store: string;
}

/** An origin on this node; its files stay until `release` is called. */
export interface HeldOrigin {
  uid: string;
  record: OriginRecord;
  imageDir: string;
  /** Its memory image; table and index are there only if it has one that is stored in packs. */
  pages: LocalPages;
  release: () => Promise<void>;
}

export interface OriginsOptions {
  dir: string;
  /** Of this node's runsc: a memory image of another build is not even fetched. */
  runtimeBuild: string;
  store: (name: string) => SnapshotStore;
  /** Origins whose volume data actors of this node have at the bottom of their stacks. */
  inUse: () => ReadonlySet<string>;
  checks: FileChecks;
  /** Told whenever the number of origins changes. */
  count: (count: number) => void;
  /** Unpacking: few at once, as they share one disk. */
  jobs: LimitFunction;
  /** Space on the disk for what is to be fetched. Throws NO_ROOM. */
  claim: (bytes: number, what: string) => Promise<DiskClaim>;
  /** As du does. */
  bytesBelow: (dir: string) => Promise<number>;
  log: Logger;
  signal: AbortSignal;
}

export interface Filled {
  facts: OriginFacts;
  /** Of what was fetched from the store. */
  digests?: readonly Digest[];
  /** Called when the files have their final place. */
  placed?: (imageDir: string) => void;
}

interface Entry {
  record: OriginRecord;
  holders: number;
  lastUsedMs: number;
}

/**
 * Snapshots that actors of this node start from (golden ones and tags): each is fetched once, however many starts ask
 * for it at once, and restored in place by all of them.
 */
export class Origins {
  readonly unfit = new UnfitOrigins();
  readonly #options: OriginsOptions;
  readonly #folder: OriginFolder;
  readonly #entries = new Map<string, Entry>();
  /** Starts that ask while it is being fetched share that one's end, a bad one too. */
  readonly #readying = new Map<string, Promise<Entry>>();
  /** Fetching, filling and removing of one origin never overlap. */
  readonly #turns = new Map<string, Promise<unknown>>();

  constructor(options: OriginsOptions) {
    this.#options = options;
    this.#folder = new OriginFolder(options.dir, options.checks);
  }

  /** A volume's content in an origin that is here. */
  volumeDir(uid: string, name: string): string {
    return this.#folder.volumeDir(uid, name);
  }

  /** Where the `fill` of `make` puts a volume's content. */
  newVolumeDir(uid: string, name: string): string {
    return this.#folder.newVolumeDir(uid, name);
  }

  /** What an earlier atelet left is used on. */
  async load(): Promise<void> {
    for (const [uid, record] of await this.#folder.load()) {
      this.#entries.set(uid, { record, holders: 0, lastUsedMs: performance.now() });
    }
    this.#options.count(this.#entries.size);
    void this.#watch();
  }

  /** Brings it here, if it isn't. Throws STORE_UNAVAILABLE, SNAPSHOT_MISSING, SNAPSHOT_DAMAGED, or RESTORE_FAILED for a foreign runtime. */
  async hold(source: OriginSource): Promise<HeldOrigin> {
    const uid = source.prefix.actorUid;
    for (;;) {
      let ready = this.#readying.get(uid);
      if (ready === undefined) {
        ready = this.#inTurn(uid, () => this.#ready(source)).finally(() => this.#readying.delete(uid));
        this.#readying.set(uid, ready);
      }
      const entry = await ready;
      // A removal that was waiting for its turn may have come before us.
      if (this.#entries.get(uid) === entry) return this.#hold(uid, entry);
    }
  }

  async #ready(source: OriginSource): Promise<Entry> {
    const entry = (await this.#whole(source.prefix.actorUid, source.name)) ?? (await this.#fetch(source));
    this.#refuseForeign(source.name, entry.record);
    return entry;
  }

  /** Keeps the files of one that is here for a load that an earlier atelet began. */
  holdLoaded(uid: string): HeldOrigin | undefined {
    const entry = this.#entries.get(uid);
    return entry && this.#hold(uid, entry);
  }

  /** Makes one here; `fill` writes its files and says what they are. One that is here already is left as it is. */
  make(uid: string, fill: (dir: string) => Promise<Filled>): Promise<HeldOrigin> {
    return this.#inTurn(uid, async () => {
      const entry = this.#entries.get(uid) ?? (await this.#fill(uid, fill));
      return this.#hold(uid, entry);
    });
  }

  /** How the files of one look that is here, before it is stored. */
  async stamps(uid: string): Promise<ReadonlyMap<string, string>> {
    const entry = this.#entries.get(uid);
    return entry === undefined ? new Map<string, string>() : this.#folder.stamps(uid, entry.record);
  }

  /**
   * It was stored: what actors that begin from it store shares its pages, and a damage of its files here is noticed.
   * @param stamps from before.
   */
  async stored(
    uid: string,
    stamps: ReadonlyMap<string, string>,
    { files, index }: Pick<Committed, "files" | "index">,
  ): Promise<void> {
    await this.#inTurn(uid, async () => {
      const entry = this.#entries.get(uid);
      if (entry === undefined) return;
      if (index !== undefined) await this.#folder.keepIndex(uid, index);
      entry.record.seal = await sealOf(stamps, [...files, ...(index === undefined ? [] : [{ name: pagesFile }])]);
      await this.#folder.rewrite(uid, entry.record);
    });
  }

  /** Its Snapshot object is gone: it goes when nobody uses it any more. */
  async forget(uid: string): Promise<void> {
    await this.#inTurn(uid, async () => {
      const entry = this.#entries.get(uid);
      if (entry === undefined) return;
      entry.record = { ...entry.record, doomed: true };
      await this.#folder.rewrite(uid, entry.record);
    });
    await this.sweep();
  }

  /** Removes what is not needed any more; called from time to time. */
  async sweep(nowMs = performance.now()): Promise<void> {
    const going = this.#unused().filter(
      ([, { record, lastUsedMs }], index) => record.doomed || (index >= KEEP && nowMs - lastUsedMs > KEEP_MS),
    );
    for (const [uid] of going) await this.#inTurn(uid, () => this.#remove(uid));
  }

  #hold(uid: string, entry: Entry): HeldOrigin {
    entry.holders += 1;
    let held = true;
    return {
      uid,
      record: entry.record,
      imageDir: this.#folder.imageDir(uid),
      pages: this.#folder.pages(uid),
      release: async () => {
        if (!held) return;
        held = false;
        entry.holders -= 1;
        entry.lastUsedMs = performance.now();
        if (entry.record.doomed && entry.holders === 0) await this.sweep();
      },
    };
  }

  /** The one that is here, unless its files are damaged: then it makes room for a new copy. */
  async #whole(uid: string, name: string): Promise<Entry | undefined> {
    const entry = this.#entries.get(uid);
    if (entry === undefined) return undefined;
    const damage = await this.#folder.damage(uid, entry.record);
    if (damage === undefined) return entry;
    if (entry.holders > 0 || this.#options.inUse().has(uid)) {
      const message = `the copy of Snapshot ${name} on this node is damaged (${damage}) and in use: suspend the actors that came from it`;
      throw new SubstrateError("SNAPSHOT_DAMAGED", message);
    }
    this.#options.log.error("the local copy of a snapshot is damaged; it is fetched again", { snapshot: name, damage });
    await this.#remove(uid);
    return undefined;
  }

  #fetch({ prefix, name, store: storeName }: OriginSource): Promise<Entry> {
    return this.#fill(prefix.actorUid, async (dir) => {
      const store = this.#options.store(storeName);
      const stored = await store.stored(prefix);
      if (stored === undefined) {
        // its deletion has removed the head, or all of it
        const message = `Snapshot ${name} has no data in store ${storeName}: it was deleted, or the store is another one`;
        throw new SubstrateError("SNAPSHOT_MISSING", message);
      }
      const facts = factsOf(stored.manifest, name);
      this.#refuseForeign(name, facts);
      const claim = await this.#options.claim(stored.manifest.sizeBytes, `Snapshot ${name}`);
      try {
        const manifest = await this.#download(store, prefix, { dir, key: stored.key, volumes: facts.volumes });
        return { facts, digests: digestsOf(manifest) };
      } finally {
        claim.end();
      }
    });
  }

  async #download(
    store: SnapshotStore,
    prefix: ActorPrefix,
    { dir, key, volumes }: { dir: string; key: string; volumes: readonly string[] },
  ): Promise<Manifest> {
    const image = join(dir, "image");
    const { table, index } = this.#folder.newPages(prefix.actorUid);
    const manifest = await store.download(prefix, key, { dir: image, pages: { table, index, reuse: this.#images() } });
    for (const volume of volumes) {
      const archive = join(image, volumeFile(volume));
      const folder = this.#folder.newVolumeDir(prefix.actorUid, volume);
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await this.#options.jobs(() => unpackFolder(archive, folder, this.#options.signal));
      await rm(archive);
    }
    return manifest;
  }

  /** Those that nobody uses and that are in a store, the ones that were used last at the end. */
  removables(minUnusedMs: number, nowMs = performance.now()): Removable[] {
    return this.#unused()
      .filter(([, { lastUsedMs }]) => nowMs - lastUsedMs >= minUnusedMs)
      .reverse()
      .map(([uid, { record }]) => ({
        kind: "origin",
        name: `Snapshot ${record.name}`,
        bytes: () => this.#options.bytesBelow(this.#folder.home(uid)),
        remove: async () => {
          // whoever has the turn, or waits for it, may be waiting for the very space that this is to free
          if (this.#turns.has(uid) || this.#options.inUse().has(uid)) return false;
          return this.#inTurn(uid, () => this.#remove(uid));
        },
      }));
  }

  /** Where images are, of all that are here. */
  imageDirs(): { imageDir: string; fidelity: OriginRecord["fidelity"] }[] {
    return [...this.#entries].map(([uid, { record }]) => ({
      imageDir: this.#folder.imageDir(uid),
      fidelity: record.fidelity,
    }));
  }

  /** Of images that origins here were made with, and are restored with. */
  imageDigests(): string[] {
    return [...this.#entries.values()].map(({ record }) => record.imageDigest);
  }

  /** The one that was used last first. */
  #unused(): [string, Entry][] {
    const inUse = this.#options.inUse();
    return [...this.#entries]
      .filter(([uid, { holders }]) => holders === 0 && !inUse.has(uid))
      .sort(([, a], [, b]) => b.lastUsedMs - a.lastUsedMs);
  }

  /** Of those that were used last: reading what many have takes longer than it saves. */
  #images(): LocalPages[] {
    return [...this.#entries]
      .filter(([, { record }]) => record.fidelity === "Memory")
      .sort(([, a], [, b]) => b.lastUsedMs - a.lastUsedMs)
      .slice(0, REUSED)
      .map(([uid]) => this.#folder.pages(uid));
  }

  async #fill(uid: string, fill: (dir: string) => Promise<Filled>): Promise<Entry> {
    const dir = await this.#folder.begin(uid);
    try {
      const { facts, digests, placed } = await fill(dir);
      const record = await this.#folder.commit(uid, facts, digests);
      placed?.(this.#folder.imageDir(uid));
      const entry: Entry = { record, holders: 0, lastUsedMs: performance.now() };
      this.#entries.set(uid, entry);
      this.#options.count(this.#entries.size);
      return entry;
    } catch (error) {
      await this.#folder.abandon(uid);
      throw error;
    }
  }

  #refuseForeign(name: string, { fidelity, runtime }: Pick<OriginRecord, "fidelity" | "runtime">): void {
    if (fidelity !== "Memory" || runtime === this.#options.runtimeBuild) return;
    throw new SubstrateError(
      "RESTORE_FAILED",
      `Snapshot ${name} was written by runsc ${runtime}, and this node has ${this.#options.runtimeBuild}: only the ` +
        `build that wrote a memory image can read it`,
    );
  }

  /** Somebody may have come between the look and the turn. @returns whether it is gone. */
  async #remove(uid: string): Promise<boolean> {
    const entry = this.#entries.get(uid);
    if (entry === undefined || entry.holders > 0) return false;
    this.#entries.delete(uid);
    this.#options.count(this.#entries.size);
    await this.#folder.remove(uid);
    return true;
  }

  async #inTurn<T>(uid: string, work: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(uid) ?? Promise.resolve();
    const turn = before.then(work, work);
    this.#turns.set(uid, turn);
    try {
      return await turn;
    } finally {
      if (this.#turns.get(uid) === turn) this.#turns.delete(uid);
    }
  }

  async #watch(): Promise<void> {
    const { signal, log } = this.#options;
    const pause = (): Promise<boolean> =>
      delay(SWEEP_EVERY_MS, undefined, { signal, ref: false }).then(
        () => true,
        () => false,
      );
    while (await pause()) {
      try {
        await this.sweep();
      } catch (error) {
        log.warn("an unused snapshot could not be removed from the node yet", { error });
      }
    }
  }
}

function factsOf(manifest: Manifest, name: string): OriginFacts {
  return {
    name,
    revision: manifest.revision,
    imageDigest: manifest.imageDigest,
    runtime: manifest.sandbox.runtime,
    fidelity: manifest.fidelity,
    envDigest: manifest.envDigest ?? "",
    createdAtMs: Date.parse(manifest.createdAt),
    volumes: (manifest.volumes ?? []).map(({ name: volume }) => volume),
    rootfsTar: manifest.rootfsTar === true,
  };
}
