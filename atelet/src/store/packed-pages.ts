import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import pLimit from "p-limit";
import { type Phases } from "@substrate/lib/phases.ts";
import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { isMissing } from "../node-files.ts";
import { type Packed, type PackRequest, type Pages, type PackUse } from "../pages/pages.ts";
import {
  copiedPack,
  generationFolder,
  indexFile,
  objectKey,
  ownerOfPack,
  packFolder,
  packObject,
  pagesFile,
} from "./layout.ts";
import { findManifest } from "./manifests.ts";
import { type ActorPrefix, type Destination, type KnownPages } from "./snapshots.ts";
import { type Head, type Manifest, type ManifestPages, type ObjectStore, type StoredObject } from "./store.ts";
import { type PackUsers } from "./users.ts";

/** Copies of packs within a store at once. */
const copiesAtOnce = 8;

interface Base {
  local: Pick<KnownPages, "table" | "index">;
  pages: ManifestPages;
}

export interface StoredPages {
  pages: ManifestPages;
  index: Packed["index"];
  newPages: number;
}

export interface PagesToStore {
  prefix: ActorPrefix;
  generation: number;
  epoch: number;
  head: Head | undefined;
  file: string;
  table: string;
  bases: readonly KnownPages[];
  /** Told how long packs were on their way. */
  phases: Phases;
}

/** Times how long any of several pieces of work was under way. */
class Overlapping {
  readonly #add: (ms: number) => void;
  #running = 0;
  #sinceMs = 0;

  constructor(add: (ms: number) => void) {
    this.#add = add;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running === 0) this.#sinceMs = performance.now();
    this.#running += 1;
    try {
      return await work();
    } finally {
      this.#running -= 1;
      if (this.#running === 0) this.#add(performance.now() - this.#sinceMs);
    }
  }
}

/** Memory images in a store: new pages in packs, and an index that says where each page is. */
export class PackedPages {
  readonly #store: ObjectStore;
  readonly #engine: Pages;
  readonly #users: PackUsers;

  constructor(store: ObjectStore, engine: Pages, users: PackUsers) {
    this.#store = store;
    this.#engine = engine;
    this.#users = users;
  }

  /** Stores what the best of the bases doesn't have. */
  async store({ prefix, generation, epoch, head, file, table, bases, phases }: PagesToStore): Promise<StoredPages> {
    const base = await this.#base(prefix, head, bases);
    const places = new Map((base?.pages.packs ?? []).map(({ key, at }) => [key, at ?? key]));
    const there = await this.#there(prefix, [...places.values()]);
    const upload = new Overlapping((ms) => {
      phases.add("send", ms);
    });
    const packed = await this.#engine.pack({
      file,
      table,
      ...(base && { base: base.local }),
      use: (key) => useOf(prefix, there, places.get(key)),
      keyPrefix: `${packFolder(prefix)}${generation}-${epoch}-`,
      put: (key, bytes, lengthBytes) =>
        upload.run(() => this.#store.putBytes(packObject(prefix, key), bytes, lengthBytes)),
    } satisfies PackRequest);
    const index = Buffer.from(packed.index.buffer, packed.index.byteOffset, packed.index.byteLength);
    await this.#store.put(objectKey(prefix, `${generationFolder(generation, epoch)}${indexFile}`), index);
    const packs = packed.packs.map((key) => {
      const at = places.get(key) ?? key;
      return { key, ...(at !== key && { at }) };
    });
    const { sizeBytes, storedBytes, newPages } = packed;
    const pages = { sizeBytes, storedBytes, index: { sizeBytes: index.length, sha256: sha256Of(index) }, packs };
    return { pages, index: packed.index, newPages };
  }

  /** Brings an image here, with its table and index; what other images here have is not fetched. */
  async fetch(
    prefix: ActorPrefix,
    manifest: Manifest,
    pages: ManifestPages,
    to: Destination,
    reading: Promise<StoredObject | undefined>,
  ): Promise<void> {
    const index = await this.index(prefix, manifest, pages, reading);
    const places = new Map(pages.packs.map(({ key, at }) => [key, at ?? key]));
    const unpack = (): Promise<unknown> =>
      this.#engine.unpack({
        index,
        indexName: objectKey(prefix, `${generationFolder(manifest.generation, manifest.epoch)}${indexFile}`),
        file: join(to.dir, pagesFile),
        table: to.pages.table,
        reuse: to.pages.reuse,
        lent: to.lent ?? false,
        get: (key, offset, length, into) => this.#store.getRange(placeOf(prefix, places, key), offset, length, into),
      });
    try {
      await unpack();
    } catch (error) {
      // Bytes may also have been changed on their way: what is damaged in the store is so again.
      if (asSubstrateError(error).code !== "SNAPSHOT_DAMAGED") throw error;
      await unpack();
    }
    await writeFile(to.pages.index, index);
  }

  /** The index of a stored generation. Throws SNAPSHOT_DAMAGED. @param reading of it, if that has begun. */
  async index(
    prefix: ActorPrefix,
    { generation, epoch }: Manifest,
    { index }: ManifestPages,
    reading?: Promise<StoredObject | undefined>,
  ): Promise<Buffer> {
    const key = objectKey(prefix, `${generationFolder(generation, epoch)}${indexFile}`);
    const found = (await (reading ?? this.#store.get(key)))?.body;
    if (found?.length === index.sizeBytes && sha256Of(found) === index.sha256) return found;
    const what = found === undefined ? "missing from the store" : "damaged: its sha256 is not that of its manifest";
    throw new SubstrateError("SNAPSHOT_DAMAGED", `${key} is ${what}`);
  }

  /** Gives all packs of a generation a place under another prefix. */
  async copy(from: ActorPrefix, pages: ManifestPages, to: ActorPrefix): Promise<ManifestPages> {
    const limit = pLimit(copiesAtOnce);
    const packs = pages.packs.map(({ key, at }) => ({ key, from: at ?? key, at: copiedPack(key, to) }));
    // All have ended when this does: a late one would come after the prefix was removed.
    const copied = await Promise.allSettled(
      packs.map((pack) => limit(() => this.#store.copy(packObject(from, pack.from), packObject(to, pack.at)))),
    );
    for (const one of copied) if (one.status === "rejected") throw one.reason;
    return { ...pages, packs: packs.map(({ key, at }) => ({ key, at })) };
  }

  /** Those of the places that have their pack: what somebody has removed is stored anew with the next upload. */
  async #there(prefix: ActorPrefix, places: readonly string[]): Promise<ReadonlySet<string>> {
    const folders = new Set(places.map((place) => folderOf(packObject(prefix, place))));
    const listed = new Set((await Promise.all([...folders].map((folder) => this.#store.list(folder)))).flat());
    return new Set(places.filter((place) => listed.has(packObject(prefix, place))));
  }

  /** That which the head names; else a Snapshot's, whose packs stay once marked. */
  async #base(prefix: ActorPrefix, head: Head | undefined, bases: readonly KnownPages[]): Promise<Base | undefined> {
    const own = bases.find((base) => base.prefix.actorUid === prefix.actorUid && base.key === head?.manifest);
    if (own !== undefined) {
      const base = await this.#known(own);
      if (base !== undefined) return base;
    }
    for (const foreign of bases.filter((base) => base.prefix.actorUid !== prefix.actorUid)) {
      // Without packs there is nothing to mark.
      if ((await this.#known(foreign)) === undefined) continue;
      if (!(await this.#users.mark(foreign.prefix, prefix))) continue;
      const base = await this.#known(foreign);
      if (base !== undefined) return base;
    }
    return undefined;
  }

  /** A base, if it is in the store and what is here of it is what was stored. */
  async #known(base: KnownPages): Promise<Base | undefined> {
    let pages: ManifestPages | undefined;
    try {
      pages = (await findManifest(this.#store, base.prefix, base.key))?.manifest.pages;
    } catch (error) {
      // what is damaged there, or was written by a newer program, must not keep a newer state out of the store
      const { code } = asSubstrateError(error);
      if (code !== "SNAPSHOT_DAMAGED" && code !== "RESTORE_FAILED") throw error;
    }
    if (pages === undefined) return undefined;
    const index = await readFile(base.index).catch((error: unknown) => {
      if (isMissing(error)) return undefined;
      throw error;
    });
    return index !== undefined && sha256Of(index) === pages.index.sha256 ? { local: base, pages } : undefined;
  }
}

/** @param place of a pack that the base's index names; undefined if its manifest doesn't. */
function useOf(prefix: ActorPrefix, there: ReadonlySet<string>, place: string | undefined): PackUse {
  if (place === undefined || !there.has(place)) return "none";
  return ownerOfPack(prefix, place).actorUid === prefix.actorUid ? "own" : "foreign";
}

function folderOf(key: string): string {
  return key.slice(0, key.lastIndexOf("/") + 1);
}

function placeOf(prefix: ActorPrefix, places: ReadonlyMap<string, string>, key: string): string {
  const place = places.get(key);
  if (place !== undefined) return packObject(prefix, place);
  throw new SubstrateError("SNAPSHOT_DAMAGED", `the index of a snapshot names ${key}, which its manifest doesn't`);
}

function sha256Of(bytes: Buffer): string {
  return createHash("sha256").update(bytes).digest("hex");
}
