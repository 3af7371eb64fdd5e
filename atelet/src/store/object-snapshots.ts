import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { Phases } from "@substrate/lib/phases.ts";
import { type Pages } from "../pages/pages.ts";
import { collectPacks } from "./collector.ts";
import { Heads, refuseHigherEpoch, superseded } from "./heads.ts";
import { generationFolder, indexFile, manifestFile, manifestKey, objectKey, pagesFile } from "./layout.ts";
import { commitResult, manifestsAmong, readManifest, type ReadManifest } from "./manifests.ts";
import { PackedPages, type PagesToStore, type StoredPages } from "./packed-pages.ts";
import { removePrefix } from "./removal.ts";
import {
  type ActorPrefix,
  type Committed,
  type Content,
  type Destination,
  type ManifestFacts,
  type Owner,
  type Removal,
  type SnapshotStore,
  type Stored,
} from "./snapshots.ts";
import { type Head, type Manifest, type ManifestFile, type ObjectStore } from "./store.ts";
import { Transfers } from "./transfers.ts";
import { PackUsers } from "./users.ts";

interface NamedFile {
  name: string;
  path: string;
}

export interface SnapshotStoreOptions {
  /** Of all stores of a node. */
  transfers?: Transfers;
  /** How long a mark of a user is believed, whatever there is of that user; a test's. */
  graceMs?: number;
}

/** Snapshots as design.md §9 lays them out in an object store, with the fencing by epochs of §7. */
export class ObjectSnapshotStore implements SnapshotStore {
  readonly #store: ObjectStore;
  readonly #heads: Heads;
  readonly #users: PackUsers;
  readonly #pages: PackedPages;
  readonly #transfers: Transfers;

  constructor(store: ObjectStore, pages: Pages, { transfers = new Transfers(), graceMs }: SnapshotStoreOptions = {}) {
    this.#store = store;
    this.#heads = new Heads(store);
    this.#users = new PackUsers(store, graceMs);
    this.#pages = new PackedPages(store, pages, this.#users);
    this.#transfers = transfers;
  }

  async head(prefix: ActorPrefix): Promise<Head | undefined> {
    return this.#heads.read(prefix);
  }

  claim(prefix: ActorPrefix, epoch: number): Promise<Head> {
    return this.#heads.change(prefix, (head) => {
      refuseHigherEpoch(prefix, head, epoch);
      return head?.epoch === epoch ? head : { generation: 0, manifest: null, ...head, epoch };
    });
  }

  async commit(prefix: ActorPrefix, facts: ManifestFacts, content: Content): Promise<Committed> {
    const { generation, epoch } = facts;
    const phases = content.phases ?? new Phases();
    const key = manifestKey(generation, epoch);
    const next = (head: Head | undefined): Head => {
      if (head?.manifest === key) return head;
      refuseHigherEpoch(prefix, head, epoch);
      if (head && head.generation >= generation) throw superseded(prefix, head, `generation ${generation}`);
      return { epoch, generation, manifest: key };
    };
    const head = await phases.run("head", () => this.head(prefix));
    if (head?.manifest === key) return this.#committed(prefix, key);
    next(head);
    const { files, packed } = await this.#putContent(prefix, facts, head, content, phases);
    const sizeBytes = files.reduce((sum, file) => sum + file.sizeBytes, packed?.pages.sizeBytes ?? 0);
    const manifest: Manifest = {
      ...facts,
      ...(packed && { format: 3, pages: packed.pages }),
      sizeBytes,
      files,
    };
    const body = Buffer.from(JSON.stringify(manifest));
    await phases.run("manifest", async () => {
      await this.#store.put(objectKey(prefix, key), body);
      if (!(await this.#users.areKept(prefix, manifest))) await this.#takeBack(prefix, key);
    });
    await phases.run("head", () => this.#heads.change(prefix, next));
    return { ...commitResult(prefix, key, { manifest, body }), index: packed?.index };
  }

  async rewind(prefix: ActorPrefix, epoch: number, key: string): Promise<Head> {
    const { generation } = await this.manifest(prefix, key);
    return this.#heads.change(prefix, (head) => {
      refuseHigherEpoch(prefix, head, epoch);
      return head?.epoch === epoch && head.manifest === key ? head : { epoch, generation, manifest: key };
    });
  }

  async stored(prefix: ActorPrefix): Promise<Stored | undefined> {
    const key = (await this.head(prefix))?.manifest ?? null;
    if (key === null) return undefined;
    const read = await readManifest(this.#store, prefix, key);
    return { key, manifest: read.manifest, ...commitResult(prefix, key, read) };
  }

  async copy(from: { prefix: ActorPrefix; key: string }, to: ActorPrefix, owner: Owner): Promise<Stored> {
    const present = await this.stored(to);
    if (present !== undefined) return present;
    const source = await this.manifest(from.prefix, from.key);
    const pages = source.pages && (await this.#pages.copy(from.prefix, source.pages, to));
    const { key, manifest } = copied({ ...source, ...(pages && { pages }) }, owner);
    for (const name of [...source.files.map((file) => file.name), ...(pages ? [indexFile] : [])]) {
      await this.#store.copy(
        objectKey(from.prefix, from.key.replace(manifestFile, name)),
        objectKey(to, key.replace(manifestFile, name)),
      );
    }
    const body = Buffer.from(JSON.stringify(manifest));
    await this.#store.put(objectKey(to, key), body);
    await this.#heads.change(
      to,
      (head) => head ?? { epoch: manifest.epoch, generation: manifest.generation, manifest: key },
    );
    return { key, manifest, ...commitResult(to, key, { manifest, body }) };
  }

  async manifest(prefix: ActorPrefix, key: string): Promise<Manifest> {
    return (await readManifest(this.#store, prefix, key)).manifest;
  }

  async manifests(prefix: ActorPrefix): Promise<Manifest[]> {
    return manifestsAmong(this.#store, prefix, await this.#store.list(objectKey(prefix, "")));
  }

  async download(prefix: ActorPrefix, key: string, to: Destination): Promise<Manifest> {
    // Its manifest says whether it has one: nearly all have, and a round trip is saved.
    const index = this.#store.get(objectKey(prefix, key.replace(manifestFile, indexFile)));
    index.catch(() => undefined);
    const manifest = await this.manifest(prefix, key);
    const { generation, epoch, files, pages } = manifest;
    const folder = generationFolder(generation, epoch);
    const fetching = new Map(
      files.map((file) => [
        file.name,
        this.#store.getFile(objectKey(prefix, `${folder}${file.name}`), join(to.dir, file.name), file),
      ]),
    );
    to.began?.(manifest, async (name) => fetching.get(name));
    // All have ended when this does, so that the caller can remove the folder.
    const fetched = await Promise.allSettled([
      ...fetching.values(),
      ...(pages
        ? [this.#transfers.down(pages.sizeBytes, () => this.#pages.fetch(prefix, manifest, pages, to, index))]
        : []),
    ]);
    for (const one of fetched) if (one.status === "rejected") throw one.reason;
    return manifest;
  }

  async collect(prefix: ActorPrefix, generation: number, epoch: number): Promise<void> {
    const key = manifestKey(generation, epoch);
    if ((await this.head(prefix))?.manifest === key) {
      const message = `generation ${generation} of actor ${prefix.actorUid} is the newest in the store and stays`;
      throw new SubstrateError("INVALID", message);
    }
    // The manifest goes first: while it is there, so is everything that it names.
    await this.#store.delete(objectKey(prefix, key));
    const rest = await this.#store.list(objectKey(prefix, generationFolder(generation, epoch)));
    if (rest.length > 0) await this.#store.deleteAll(rest);
  }

  collectPacks(prefix: ActorPrefix, epoch: number): Promise<void> {
    return collectPacks(this.#store, this.#heads, prefix, epoch);
  }

  deletePrefix(prefix: ActorPrefix): Promise<Removal> {
    return removePrefix(this.#store, this.#users, prefix);
  }

  async #putContent(
    prefix: ActorPrefix,
    facts: ManifestFacts,
    head: Head | undefined,
    { dirs, pages }: Content,
    phases: Phases,
  ): Promise<{ files: ManifestFile[]; packed: StoredPages | undefined }> {
    const all = await filesOf(dirs);
    const image = pages && all.find(({ name }) => name === pagesFile);
    const { generation, epoch } = facts;
    const [files, packed] = await Promise.allSettled([
      phases.run("files", () =>
        this.#putFiles(
          objectKey(prefix, generationFolder(generation, epoch)),
          all.filter((file) => file !== image),
        ),
      ),
      pages && image
        ? this.#putPages({ prefix, generation, epoch, head, file: image.path, phases, ...pages })
        : undefined,
    ]);
    if (packed.status === "rejected") throw packed.reason;
    if (files.status === "rejected") throw files.reason;
    return { files: files.value, packed: packed.value };
  }

  async #putPages(image: PagesToStore): Promise<StoredPages> {
    const { size } = await stat(image.file);
    const queuedMs = performance.now();
    return this.#transfers.up(size, () => {
      image.phases.add("queue", performance.now() - queuedMs);
      return image.phases.run("pack", () => this.#pages.store(image));
    });
  }

  async #putFiles(folder: string, all: readonly NamedFile[]): Promise<ManifestFile[]> {
    const files: ManifestFile[] = [];
    for (const { name, path } of all) {
      files.push({ name, ...(await this.#store.putFile(`${folder}${name}`, path)) });
    }
    return files;
  }

  /** Packs of a Snapshot were taken for unused meanwhile: without them, the next try stores its pages anew. */
  async #takeBack(prefix: ActorPrefix, key: string): Promise<never> {
    await this.#store.delete(objectKey(prefix, key));
    const message = `a Snapshot that ${objectKey(prefix, key)} shares pages with was deleted meanwhile; it is tried again`;
    throw new SubstrateError("STORE_UNAVAILABLE", message);
  }

  async #committed(prefix: ActorPrefix, key: string): Promise<Committed> {
    const read: ReadManifest = await readManifest(this.#store, prefix, key);
    const { manifest } = read;
    const index = manifest.pages && (await this.#pages.index(prefix, manifest, manifest.pages));
    return { ...commitResult(prefix, key, read), index };
  }
}

/** By name. Throws INTERNAL for what is no folder of a snapshot's files. */
async function filesOf(dirs: readonly string[]): Promise<NamedFile[]> {
  const files: NamedFile[] = [];
  for (const dir of dirs) {
    for (const entry of await readdir(dir, { withFileTypes: true })) {
      const { name } = entry;
      const reserved = name === manifestFile || name === indexFile;
      if (!entry.isFile() || reserved || files.some((other) => other.name === name)) {
        throw new SubstrateError("INTERNAL", `${dir} is no folder of snapshot files: ${name} does not belong there`);
      }
      files.push({ name, path: join(dir, name) });
    }
  }
  if (files.length === 0) {
    throw new SubstrateError("INTERNAL", `${dirs.join(", ")} is no folder of snapshot files: it is empty`);
  }
  return files.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** A generation as the only one of another owner. */
export function copied<M extends ManifestFacts>(source: M, owner: Owner): { key: string; manifest: M } {
  const { actor, generation, epoch } = source;
  const manifest = {
    ...source,
    actor: owner,
    generation: 1,
    epoch: 1,
    copyOf: { actorUid: actor.uid, generation, epoch },
  };
  return { key: manifestKey(1, 1), manifest };
}
