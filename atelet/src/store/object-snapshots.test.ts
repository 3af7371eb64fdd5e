import fc from "fast-check";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { FileStore } from "./file.ts";
import { PageEngine } from "../pages/page-engine.ts";
import { type Destination } from "./snapshots.ts";
import { ObjectSnapshotStore } from "./object-snapshots.ts";
import { type Head, type Manifest, type ObjectStore, type PutCondition } from "./store.ts";

// images without tables are stored as they are, as in formats 1 and 2
const engine = new PageEngine();
let dir: string;
let image: string;
let store: FileStore;
let snapshots: ObjectSnapshotStore;
vi.setConfig({ testTimeout: 30_000 });

const prefix = { clusterUid: "c", namespaceUid: "n", actorUid: "a" };

beforeEach(async () => {
  // In memory: what is tested is the order of writes, not the disk; hundreds of fsyncs would wait for other programs.
  dir = await mkdtemp("/dev/shm/snapshots-");
  image = join(dir, "image");
  await mkdir(image);
  await writeFile(join(image, "checkpoint.img"), "state");
  await writeFile(join(image, "pages.img"), "pages of memory");
  await writeFile(join(image, "pages_meta.img"), "");
  store = await FileStore.open(join(dir, "store"));
  snapshots = new ObjectSnapshotStore(store, engine);
});

afterEach(async () => {
  await store.close();
  await rm(dir, { recursive: true });
});

function manifestOf(generation: number, epoch: number): Omit<Manifest, "files" | "sizeBytes"> {
  return {
    format: 1,
    actor: { uid: "a", namespace: "default", name: "counter" },
    generation,
    epoch,
    revision: "r1",
    imageDigest: "sha256:00",
    fidelity: "Memory",
    envDigest: "",
    sandbox: { class: "gvisor", runtime: "test", architecture: "amd64" },
    createdAt: "2026-01-01T00:00:00Z",
  };
}

function commit(generation: number, epoch: number, to = snapshots) {
  return to.commit(prefix, manifestOf(generation, epoch), { dirs: [image] });
}

interface Written {
  body: Buffer;
  condition: PutCondition | undefined;
  etag: string | undefined;
}

type Watch = (moment: "before" | "after", key: string, written?: Written) => Promise<void> | void;

/** An ObjectStore whose changes pass a test's watch, before and after they happen. */
class Watched implements ObjectStore {
  readonly #inner: ObjectStore;
  readonly #on: Watch;

  constructor(inner: ObjectStore, on: Watch) {
    this.#inner = inner;
    this.#on = on;
  }

  get(key: string) {
    return this.#inner.get(key);
  }

  list(key: string) {
    return this.#inner.list(key);
  }

  getFile(key: string, path: string, expected: { sizeBytes: number; sha256: string }) {
    return this.#inner.getFile(key, path, expected);
  }

  async put(key: string, body: Buffer, condition?: PutCondition) {
    await this.#on("before", key);
    const etag = await this.#inner.put(key, body, condition);
    await this.#on("after", key, { body, condition, etag });
    return etag;
  }

  async putFile(key: string, path: string) {
    await this.#on("before", key);
    const stored = await this.#inner.putFile(key, path);
    await this.#on("after", key);
    return stored;
  }

  async putBytes(key: string, bytes: ArrayBuffer, lengthBytes?: number) {
    await this.#on("before", key);
    const memory = await this.#inner.putBytes(key, bytes, lengthBytes);
    await this.#on("after", key);
    return memory;
  }

  getRange(key: string, offset: number, lengthBytes: number, into?: ArrayBuffer) {
    return this.#inner.getRange(key, offset, lengthBytes, into);
  }

  async copy(from: string, to: string) {
    await this.#on("before", to);
    await this.#inner.copy(from, to);
    await this.#on("after", to);
  }

  async delete(key: string) {
    await this.#on("before", key);
    await this.#inner.delete(key);
    await this.#on("after", key);
  }

  async deleteAll(keys: readonly string[]) {
    for (const key of keys) await this.delete(key);
  }
}

/** Dies at the n-th of its moments (before and after each change), and at every later one. */
function dying(moments: number): { store: ObjectSnapshotStore; died: () => boolean } {
  let left = moments;
  const on = () => {
    left -= 1;
    if (left < 0) throw new Error("died");
  };
  return { store: new ObjectSnapshotStore(new Watched(store, on), engine), died: () => left < 0 };
}

it("commits, names it in the head, and gives the same bytes back", async () => {
  const result = await commit(1, 1);
  expect(result.location).toBe("c/n/a/1-1/manifest.json");
  expect(result.digest).toMatch(/^sha256:[0-9a-f]{64}$/);
  expect(await snapshots.head(prefix)).toEqual({ epoch: 1, generation: 1, manifest: "1-1/manifest.json" });
  const fetched = join(dir, "fetched");
  await mkdir(fetched);
  const manifest = await snapshots.download(prefix, "1-1/manifest.json", at(fetched));
  expect(manifest).toMatchObject({ ...manifestOf(1, 1), sizeBytes: 20 });
  for (const { name } of manifest.files) {
    expect(await readFile(join(fetched, name))).toEqual(await readFile(join(image, name)));
  }
  expect(manifest.files).toHaveLength(3);
  expect(await commit(1, 1)).toEqual(result);
});

it("claims for an epoch, again too, and never for a lower one", async () => {
  expect(await snapshots.claim(prefix, 1)).toEqual({ epoch: 1, generation: 0, manifest: null });
  await commit(1, 1);
  const claimed = { epoch: 3, generation: 1, manifest: "1-1/manifest.json" };
  expect(await snapshots.claim(prefix, 3)).toEqual(claimed);
  expect(await snapshots.claim(prefix, 3)).toEqual(claimed);
  await expect(snapshots.claim(prefix, 2)).rejects.toMatchObject({ code: "SUPERSEDED" });
  await expect(commit(2, 2)).rejects.toMatchObject({ code: "SUPERSEDED" });
  await expect(commit(1, 3)).rejects.toMatchObject({ code: "SUPERSEDED" });
  // Its own manifest, claimed by somebody else meanwhile, is a success.
  expect((await commit(1, 1)).location).toBe("c/n/a/1-1/manifest.json");
  expect(await snapshots.head(prefix)).toEqual(claimed);
  await commit(2, 3);
  await expect(commit(1, 1)).rejects.toMatchObject({ code: "SUPERSEDED" });
});

it("can be cut off at every moment of a commit and then finished", async () => {
  await commit(1, 1);
  for (let moments = 0; ; moments += 1) {
    const generation = moments + 2;
    const cut = dying(moments);
    const outcome = await commit(generation, 1, cut.store).catch((error: unknown) => error);
    if (!cut.died()) break;
    expect(outcome).toMatchObject({ message: "died" });
    const head = await snapshots.head(prefix);
    expect([generation - 1, generation]).toContain(head?.generation);
    await snapshots.download(prefix, head?.manifest ?? "", at(await fresh()));
    await commit(generation, 1);
    expect(await snapshots.head(prefix)).toMatchObject({ generation, manifest: `${generation}-1/manifest.json` });
    await snapshots.download(prefix, `${generation}-1/manifest.json`, at(await fresh()));
  }
});

it("can be cut off at every moment of a collection and a deletion and then finished", async () => {
  const steps: [string, (from: ObjectSnapshotStore) => Promise<unknown>, readonly string[]][] = [
    ["collect", (from) => from.collect(prefix, 1, 1), ["c/n/a/2-1/", "c/n/a/head.json"]],
    ["deletePrefix", (from) => from.deletePrefix(prefix), []],
  ];
  for (const [name, step, left] of steps) {
    for (let moments = 0; ; moments += 1) {
      await commit(1, 1);
      await commit(2, 1);
      const cut = dying(moments);
      const outcome = await step(cut.store).catch((error: unknown) => error);
      if (cut.died()) {
        expect(outcome).toMatchObject({ message: "died" });
        const keys = await store.list("c/n/a/");
        // What has a manifest is whole, and the head outlives all the rest.
        for (const key of keys.filter((key) => key.endsWith("manifest.json") && name === "collect")) {
          await snapshots.download(prefix, key.slice("c/n/a/".length), at(await fresh()));
        }
        if (keys.length > 0) expect(keys, name).toContain("c/n/a/head.json");
      }
      await step(snapshots);
      const keys = await store.list("");
      expect(keys.filter((key) => !left.some((prefix) => key.startsWith(prefix)))).toEqual([]);
      await snapshots.deletePrefix(prefix);
      if (!cut.died()) break;
    }
  }
});

it("copies a generation under a Snapshot's prefix, cut off at every moment and then finished; it outlives the actor", async () => {
  const to = { ...prefix, actorUid: "snapshot" };
  const owner = { uid: "snapshot", namespace: "default", name: "before" };
  await commit(1, 1);
  const key = (await commit(2, 3)).location.slice("c/n/a/".length);
  for (let moments = 0; ; moments += 1) {
    const cut = dying(moments);
    await cut.store.copy({ prefix, key }, to, owner).catch((error: unknown) => error);
    const copy = await snapshots.copy({ prefix, key }, to, owner);
    const copyOf = { actorUid: "a", generation: 2, epoch: 3 };
    expect(copy.manifest).toMatchObject({ actor: owner, generation: 1, epoch: 1, copyOf });
    expect(await snapshots.stored(to)).toEqual(copy);
    if (!cut.died()) break;
    await snapshots.deletePrefix(to);
  }
  await snapshots.deletePrefix(prefix);
  const into = await fresh();
  await snapshots.download(to, "1-1/manifest.json", at(into));
  expect(await readFile(join(into, "pages.img"), "utf8")).toBe("pages of memory");
  // Done once, it needs no source any more.
  await snapshots.copy({ prefix, key }, to, owner);
  const other = { ...prefix, actorUid: "other" };
  const lost = snapshots.copy({ prefix, key }, other, { ...owner, uid: "other" });
  await expect(lost).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
  expect(await snapshots.stored(other)).toBeUndefined();
});

it("rewinds the head to what is stored, and goes on above it", async () => {
  await commit(1, 1);
  await commit(2, 1);
  await commit(3, 1);
  const head = { epoch: 1, generation: 1, manifest: "1-1/manifest.json" };
  expect(await snapshots.rewind(prefix, 1, "1-1/manifest.json")).toEqual(head);
  expect(await snapshots.rewind(prefix, 1, "1-1/manifest.json")).toEqual(head);
  await expect(snapshots.rewind(prefix, 1, "9-1/manifest.json")).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
  await snapshots.collect(prefix, 3, 1);
  await commit(4, 1);
  await snapshots.claim(prefix, 2);
  await expect(snapshots.rewind(prefix, 1, "1-1/manifest.json")).rejects.toMatchObject({ code: "SUPERSEDED" });
  expect(await snapshots.head(prefix)).toMatchObject({ epoch: 2, generation: 4 });
});

it("never collects what the head names", async () => {
  await commit(1, 1);
  await expect(snapshots.collect(prefix, 1, 1)).rejects.toMatchObject({ code: "INVALID" });
  await snapshots.collect(prefix, 7, 7);
  expect(await snapshots.manifest(prefix, "1-1/manifest.json")).toMatchObject({ generation: 1 });
});

it("says what is damaged, missing, misplaced or too new", async () => {
  await commit(1, 1);
  const key = "c/n/a/1-1/manifest.json";
  const good = (await store.get(key))?.body.toString() ?? "";
  const read = () => snapshots.manifest(prefix, "1-1/manifest.json");
  for (const [bad, code, message] of [
    ["{", "SNAPSHOT_DAMAGED", "not JSON"],
    [good.replace('"generation":1', '"generation":2'), "SNAPSHOT_DAMAGED", "generation 2"],
    [good.replace("pages.img", "../../x"), "SNAPSHOT_DAMAGED", "name"],
    [good.replace('"format":1', '"format":3'), "SNAPSHOT_DAMAGED", "pages"],
    [good.replace('"format":1', '"format":4'), "RESTORE_FAILED", "upgrade the atelet"],
  ] as const) {
    await store.put(key, Buffer.from(bad));
    await expect(read()).rejects.toMatchObject({ code, message: expect.stringContaining(message) as string });
  }
  await store.delete(key);
  await expect(read()).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
  await store.put("c/n/a/head.json", Buffer.from('{"epoch":-1}'));
  await expect(snapshots.claim(prefix, 5)).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
});

it("refuses a folder that holds something else", async () => {
  await mkdir(join(image, "sub"));
  await expect(commit(1, 1)).rejects.toMatchObject({ message: expect.stringContaining("sub") as string });
  expect(await snapshots.head(prefix)).toBeUndefined();
});

it("never lets a lower epoch or generation replace a higher one, whatever races", async () => {
  const operation = fc.record({ epoch: fc.integer({ min: 1, max: 4 }), commits: fc.integer({ min: 0, max: 2 }) });
  let actor = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.scheduler(),
      fc.array(operation, { minLength: 2, maxLength: 4 }),
      async (scheduler, writers) => {
        actor += 1;
        const own = { ...prefix, actorUid: `a${actor}` };
        const heads = new Map<string, { head: Head; replaced: string }>();
        const watched = new Watched(store, async (moment, key, written) => {
          if (moment === "before") await scheduler.schedule(Promise.resolve(), key);
          if (!written?.etag || !key.endsWith("head.json")) return;
          const { condition } = written;
          const replaced = condition && "ifMatch" in condition ? condition.ifMatch : "";
          heads.set(written.etag, { head: JSON.parse(written.body.toString()) as Head, replaced });
        });
        const racing = writers.map(async ({ epoch, commits }) => {
          const to = new ObjectSnapshotStore(watched, engine);
          try {
            const claimed = await to.claim(own, epoch);
            for (let i = 1; i <= commits; i += 1) {
              const manifest = {
                ...manifestOf(claimed.generation + i, epoch),
                actor: { uid: own.actorUid, namespace: "", name: "" },
              };
              await to.commit(own, manifest, { dirs: [image] });
            }
          } catch (error) {
            if (!(error instanceof SubstrateError) || error.code !== "SUPERSEDED") throw error;
          }
        });
        await scheduler.waitFor(Promise.all(racing));
        const last = await snapshots.head(own);
        expect(last?.epoch).toBe(Math.max(...writers.map(({ epoch }) => epoch)));
        for (const { head, replaced } of heads.values()) {
          const before = heads.get(replaced)?.head;
          expect(head.epoch).toBeGreaterThanOrEqual(before?.epoch ?? 0);
          expect(head.generation).toBeGreaterThanOrEqual(before?.generation ?? 0);
        }
        expect([...heads.values()].filter(({ replaced }) => replaced === "")).toHaveLength(1);
        if (last?.manifest) await snapshots.manifest(own, last.manifest);
      },
    ),
    { numRuns: 25 },
  );
});

function at(folder: string): Destination {
  return { dir: folder, pages: { table: `${folder}.table`, index: `${folder}.index`, reuse: [] } };
}

async function fresh(): Promise<string> {
  return mkdtemp(join(dir, "fetched-"));
}
