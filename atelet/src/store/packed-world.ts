import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PageEngine } from "../pages/page-engine.ts";
import { PAGE_BYTES } from "../pages/pages.ts";
import { type MemoryStore } from "./memory-store.ts";
import { ObjectSnapshotStore } from "./object-snapshots.ts";
import { type ActorPrefix, type KnownPages, type ManifestFacts } from "./snapshots.ts";
import { type Head, type Manifest } from "./store.ts";

/** For tests of stored generations: images of a few pages, in a folder in memory, and what is known of them here. */
export class PackedWorld {
  readonly engine = new PageEngine();
  readonly dir: string;
  #next = 0;

  private constructor(dir: string) {
    this.dir = dir;
  }

  static async create(): Promise<PackedWorld> {
    return new PackedWorld(await mkdtemp("/dev/shm/packed-"));
  }

  /** A store as one atelet has it. */
  over(objects: MemoryStore, graceMs?: number): ObjectSnapshotStore {
    return new ObjectSnapshotStore(objects, this.engine, graceMs === undefined ? {} : { graceMs });
  }

  place(): { dir: string; table: string; index: string } {
    this.#next += 1;
    const dir = join(this.dir, String(this.#next));
    return { dir, table: `${dir}.table`, index: `${dir}.index` };
  }

  async image(content: Buffer): Promise<{ dir: string; table: string; index: string }> {
    const place = this.place();
    await mkdir(place.dir);
    await writeFile(join(place.dir, "pages.img"), content);
    await writeFile(join(place.dir, "checkpoint.img"), `state ${this.#next}`);
    return place;
  }

  /** Stores an image as a generation. @returns what the next one can be stored by. */
  async commit(
    to: ObjectSnapshotStore,
    prefix: ActorPrefix,
    [generation, epoch]: readonly [number, number],
    content: Buffer,
    bases: readonly KnownPages[] = [],
  ): Promise<KnownPages & { file: string; storedBytes: number }> {
    const { dir, table, index } = await this.image(content);
    const committed = await to.commit(prefix, facts(prefix, generation, epoch), {
      dirs: [dir],
      pages: { table, bases },
    });
    await writeFile(index, committed.index ?? Buffer.alloc(0));
    const key = `${generation}-${epoch}/manifest.json`;
    return { prefix, key, table, index, file: join(dir, "pages.img"), storedBytes: committed.storedBytes };
  }

  async fetch(
    from: ObjectSnapshotStore,
    prefix: ActorPrefix,
    key: string,
    reuse: readonly (KnownPages & { file: string })[] = [],
  ): Promise<{ content: Buffer; manifest: Manifest; known: KnownPages & { file: string } }> {
    const { dir, table, index } = this.place();
    await mkdir(dir);
    const manifest = await from.download(prefix, key, { dir, pages: { table, index, reuse } });
    const file = join(dir, "pages.img");
    return { content: await readFile(file), manifest, known: { prefix, key, table, index, file } };
  }
}

export function prefixOf(actorUid: string): ActorPrefix {
  return { clusterUid: "c", namespaceUid: "n", actorUid };
}

export function facts({ actorUid }: ActorPrefix, generation: number, epoch: number): ManifestFacts {
  return {
    format: 1,
    actor: { uid: actorUid, namespace: "default", name: actorUid },
    generation,
    epoch,
    revision: "r1",
    imageDigest: "sha256:00",
    fidelity: "Memory",
    sandbox: { class: "gvisor", runtime: "test", architecture: "amd64" },
    createdAt: "2026-01-01T00:00:00Z",
  };
}

export function randomPages(count: number): Buffer {
  return randomBytes(count * PAGE_BYTES);
}

/** The same with one page of other content. */
export function changed(content: Buffer, page: number): Buffer {
  const copy = Buffer.from(content);
  randomBytes(PAGE_BYTES).copy(copy, page * PAGE_BYTES);
  return copy;
}

/** What the head of a prefix names that is not in the store. */
export function missingOf(objects: ReadonlyMap<string, Buffer>, { actorUid }: ActorPrefix): string[] {
  const head = objects.get(`c/n/${actorUid}/head.json`);
  const key = head && (JSON.parse(head.toString()) as Head).manifest;
  if (key === null || key === undefined) return [];
  const body = objects.get(`c/n/${actorUid}/${key}`);
  if (body === undefined) return [key];
  const { files, pages } = JSON.parse(body.toString()) as Manifest;
  const folder = `c/n/${actorUid}/${key.replace("manifest.json", "")}`;
  const named = [
    ...files.map(({ name }) => `${folder}${name}`),
    ...(pages ? [`${folder}pages.index`, ...pages.packs.map((pack) => `c/${pack.at ?? pack.key}`)] : []),
  ];
  return named.filter((one) => !objects.has(one));
}

/** Packs that no manifest names. */
export function litter(objects: ReadonlyMap<string, Buffer>): string[] {
  const named = new Set<string>();
  for (const [key, body] of objects) {
    if (!key.endsWith("/manifest.json")) continue;
    for (const { key: pack, at } of (JSON.parse(body.toString()) as Manifest).pages?.packs ?? []) {
      named.add(`c/${at ?? pack}`);
    }
  }
  return [...objects.keys()].filter((key) => key.includes("/packs/") && !named.has(key));
}
