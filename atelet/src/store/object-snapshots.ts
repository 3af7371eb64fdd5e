import { createHash } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { parseHead, parseManifest } from "./documents.ts";
import { type ActorPrefix, type CommitResult, type Owner, type SnapshotStore, type Stored } from "./snapshots.ts";
import { type Head, type Manifest, type ManifestFile, type ObjectStore, type PutCondition } from "./store.ts";

/** Others change a head only when an actor moves: losing this many races in a row is a broken store. */
const maxAttempts = 8;

const manifestName = "manifest.json";

/** Snapshots as design.md §9 lays them out in an object store, with the fencing by epochs of §7. */
export class ObjectSnapshotStore implements SnapshotStore {
  readonly #store: ObjectStore;

  constructor(store: ObjectStore) {
    this.#store = store;
  }

  async head(prefix: ActorPrefix): Promise<Head | undefined> {
    return (await this.#readHead(prefix)).head;
  }

  claim(prefix: ActorPrefix, epoch: number): Promise<Head> {
    return this.#changeHead(prefix, (head) => {
      refuseHigherEpoch(prefix, head, epoch);
      return head?.epoch === epoch ? head : { generation: 0, manifest: null, ...head, epoch };
    });
  }

  async commit(
    prefix: ActorPrefix,
    manifest: Omit<Manifest, "files" | "sizeBytes">,
    ...dirs: readonly string[]
  ): Promise<CommitResult> {
    const { generation, epoch } = manifest;
    const key = manifestKey(generation, epoch);
    const next = (head: Head | undefined): Head => {
      if (head?.manifest === key) return head;
      refuseHigherEpoch(prefix, head, epoch);
      if (head && head.generation >= generation) throw superseded(prefix, head, `generation ${generation}`);
      return { epoch, generation, manifest: key };
    };
    const before = await this.head(prefix);
    if (before?.manifest === key) return this.#committed(prefix, key);
    next(before);
    const files = await this.#putFiles(prefix, key, dirs);
    const sizeBytes = files.reduce((sum, file) => sum + file.sizeBytes, 0);
    const body = Buffer.from(JSON.stringify({ ...manifest, sizeBytes, files } satisfies Manifest));
    await this.#store.put(objectKey(prefix, key), body);
    await this.#changeHead(prefix, next);
    return result(prefix, key, body, { sizeBytes, files });
  }

  async rewind(prefix: ActorPrefix, epoch: number, key: string): Promise<Head> {
    const { generation } = await this.manifest(prefix, key);
    return this.#changeHead(prefix, (head) => {
      refuseHigherEpoch(prefix, head, epoch);
      return head?.epoch === epoch && head.manifest === key ? head : { epoch, generation, manifest: key };
    });
  }

  async stored(prefix: ActorPrefix): Promise<Stored | undefined> {
    const key = (await this.head(prefix))?.manifest ?? null;
    if (key === null) return undefined;
    const { manifest, body } = await this.#readManifest(prefix, key);
    return { key, manifest, ...result(prefix, key, body, manifest) };
  }

  async copy(from: { prefix: ActorPrefix; key: string }, to: ActorPrefix, owner: Owner): Promise<Stored> {
    const present = await this.stored(to);
    if (present !== undefined) return present;
    const source = await this.manifest(from.prefix, from.key);
    const { key, manifest } = copied(source, owner);
    for (const { name } of source.files) {
      await this.#store.copy(
        objectKey(from.prefix, from.key.replace(manifestName, name)),
        objectKey(to, key.replace(manifestName, name)),
      );
    }
    const body = Buffer.from(JSON.stringify(manifest));
    await this.#store.put(objectKey(to, key), body);
    await this.#changeHead(
      to,
      (head) => head ?? { epoch: manifest.epoch, generation: manifest.generation, manifest: key },
    );
    return { key, manifest, ...result(to, key, body, manifest) };
  }

  async manifest(prefix: ActorPrefix, key: string): Promise<Manifest> {
    return (await this.#readManifest(prefix, key)).manifest;
  }

  async download(prefix: ActorPrefix, key: string, dir: string): Promise<Manifest> {
    const manifest = await this.manifest(prefix, key);
    const folder = generationFolder(manifest.generation, manifest.epoch);
    // All have ended when this does, so that the caller can remove the folder.
    const fetched = await Promise.allSettled(
      manifest.files.map((file) =>
        this.#store.getFile(objectKey(prefix, `${folder}${file.name}`), join(dir, file.name), file),
      ),
    );
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
    await this.#deleteAll(objectKey(prefix, generationFolder(generation, epoch)));
  }

  async deletePrefix(prefix: ActorPrefix): Promise<void> {
    const head = headKey(prefix);
    await this.#deleteAll(objectKey(prefix, ""), head);
    await this.#store.delete(head);
  }

  async #deleteAll(prefix: string, except?: string): Promise<void> {
    const keys = (await this.#store.list(prefix)).filter((key) => key !== except);
    if (keys.length > 0) await this.#store.deleteAll(keys);
  }

  async #putFiles(prefix: ActorPrefix, key: string, dirs: readonly string[]): Promise<ManifestFile[]> {
    const paths: { name: string; path: string }[] = [];
    for (const dir of dirs) {
      for (const entry of await readdir(dir, { withFileTypes: true })) {
        const { name } = entry;
        if (!entry.isFile() || name === manifestName || paths.some((other) => other.name === name)) {
          throw new SubstrateError("INTERNAL", `${dir} is no folder of snapshot files: ${name} does not belong there`);
        }
        paths.push({ name, path: join(dir, name) });
      }
    }
    if (paths.length === 0) {
      throw new SubstrateError("INTERNAL", `${dirs.join(", ")} is no folder of snapshot files: it is empty`);
    }
    const files: ManifestFile[] = [];
    for (const { name, path } of paths.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const stored = await this.#store.putFile(objectKey(prefix, key.replace(manifestName, name)), path);
      files.push({ name, ...stored });
    }
    return files;
  }

  async #committed(prefix: ActorPrefix, key: string): Promise<CommitResult> {
    const { manifest, body } = await this.#readManifest(prefix, key);
    return result(prefix, key, body, manifest);
  }

  async #readManifest(prefix: ActorPrefix, key: string): Promise<{ manifest: Manifest; body: Buffer }> {
    const full = objectKey(prefix, key);
    const object = await this.#store.get(full);
    if (!object) throw new SubstrateError("SNAPSHOT_DAMAGED", `${full} is missing from the store`);
    const manifest = parseManifest(full, object.body);
    if (manifest.actor.uid !== prefix.actorUid || manifestKey(manifest.generation, manifest.epoch) !== key) {
      const what = `generation ${manifest.generation}, epoch ${manifest.epoch} of actor ${manifest.actor.uid}`;
      throw new SubstrateError("SNAPSHOT_DAMAGED", `${full} is the manifest of ${what}`);
    }
    return { manifest, body: object.body };
  }

  async #readHead(prefix: ActorPrefix): Promise<{ head?: Head; condition: PutCondition }> {
    const key = headKey(prefix);
    const object = await this.#store.get(key);
    if (!object) return { condition: { ifNoneMatch: "*" } };
    return { head: parseHead(key, object.body), condition: { ifMatch: object.etag } };
  }

  /** Reads, changes and writes the head until nobody came between. `change` throws to refuse. */
  async #changeHead(prefix: ActorPrefix, change: (head: Head | undefined) => Head): Promise<Head> {
    for (let attempt = 1; attempt <= maxAttempts; attempt += 1) {
      const { head, condition } = await this.#readHead(prefix);
      const next = change(head);
      if (next === head) return head;
      if ((await this.#store.put(headKey(prefix), Buffer.from(JSON.stringify(next)), condition)) !== undefined)
        return next;
      await delay(Math.random() * 10 * attempt);
    }
    throw new SubstrateError(
      "STORE_UNAVAILABLE",
      `${headKey(prefix)} changed ${maxAttempts} times while it was written`,
    );
  }
}

/** Where the head of design.md §9 and everything else of an actor lies. */
function objectKey(prefix: ActorPrefix, key: string): string {
  return `${prefix.clusterUid}/${prefix.namespaceUid}/${prefix.actorUid}/${key}`;
}

function headKey(prefix: ActorPrefix): string {
  return objectKey(prefix, "head.json");
}

function generationFolder(generation: number, epoch: number): string {
  return `${generation}-${epoch}/`;
}

/** A generation as the only one of another owner. */
export function copied<M extends Omit<Manifest, "files" | "sizeBytes">>(
  source: M,
  owner: Owner,
): { key: string; manifest: M } {
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

function manifestKey(generation: number, epoch: number): string {
  return `${generationFolder(generation, epoch)}${manifestName}`;
}

function result(
  prefix: ActorPrefix,
  key: string,
  body: Buffer,
  { sizeBytes, files }: Pick<Manifest, "sizeBytes" | "files">,
): CommitResult {
  const digest = `sha256:${createHash("sha256").update(body).digest("hex")}`;
  return { location: objectKey(prefix, key), digest, storedBytes: sizeBytes + body.length, files };
}

function refuseHigherEpoch(prefix: ActorPrefix, head: Head | undefined, epoch: number): void {
  if (head && head.epoch > epoch) throw superseded(prefix, head, `epoch ${epoch}`);
}

function superseded(prefix: ActorPrefix, head: Head, what: string): SubstrateError {
  const newest = `epoch ${head.epoch}, generation ${head.generation}`;
  return new SubstrateError(
    "SUPERSEDED",
    `the head of actor ${prefix.actorUid} has ${newest}: ${what} is not the newest`,
  );
}
