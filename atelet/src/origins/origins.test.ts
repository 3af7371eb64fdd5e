import { mkdir, mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { createLogger } from "@substrate/lib/log.ts";
import pLimit from "p-limit";
import { afterAll, afterEach, beforeEach, expect, it, vi } from "vitest";
import { FileStore } from "../store/file.ts";
import { ObjectSnapshotStore } from "../store/object-snapshots.ts";
import { PageEngine } from "../pages/page-engine.ts";
import { Origins } from "./origins.ts";

const engine = new PageEngine();
afterAll(() => engine.close());

let dir: string;
let files: FileStore;
let store: ObjectSnapshotStore;
let ending: AbortController;
let downloads = 0;
let inUse = new Set<string>();

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "origins-"));
  files = await FileStore.open(join(dir, "store"));
  store = new ObjectSnapshotStore(files, engine);
  const download = store.download.bind(store);
  store.download = (...args) => {
    downloads += 1;
    return download(...args);
  };
  downloads = 0;
  inUse = new Set();
});

afterEach(async () => {
  ending.abort();
  await files.close();
  await rm(dir, { recursive: true });
});

/** What is heard by who needs space on the disk. */
let full: SubstrateError | undefined;

async function open(runtimeBuild = "r1"): Promise<Origins> {
  const log = createLogger("test", "crit");
  log.silent = true;
  ending = new AbortController();
  const origins = new Origins({
    dir: join(dir, "origins"),
    runtimeBuild,
    store: () => store,
    inUse: () => inUse,
    checks: { digest: () => Promise.reject(new Error("not read")), verify: (image) => engine.verify(image) },
    count: () => undefined,
    jobs: pLimit(1),
    claim: () => (full === undefined ? Promise.resolve({ end: () => undefined }) : Promise.reject(full)),
    bytesBelow: () => Promise.resolve(1),
    log,
    signal: ending.signal,
  });
  await origins.load();
  return origins;
}

const source = (uid: string) => ({
  prefix: { clusterUid: "c", namespaceUid: "n", actorUid: uid },
  name: `default/${uid}`,
  store: "default",
});

async function commit(uid: string): Promise<void> {
  const image = join(dir, "image");
  await mkdir(image, { recursive: true });
  await writeFile(join(image, "pages.img"), `pages of ${uid}`);
  await store.commit(
    source(uid).prefix,
    {
      format: 1,
      actor: { uid, namespace: "default", name: uid },
      generation: 1,
      epoch: 1,
      revision: "rev1",
      imageDigest: "sha256:1",
      fidelity: "Memory",
      envDigest: "",
      sandbox: { class: "gvisor", runtime: "r1", architecture: "amd64" },
      createdAt: "2026-01-01T00:00:00Z",
    },
    { dirs: [image], pages: { table: join(dir, `${uid}.table`), bases: [] } },
  );
}

const here = () => readdir(join(dir, "origins"));

it("is fetched once for ten starts at once, and not again by the next atelet", async () => {
  await commit("a");
  const origins = await open();
  const held = await Promise.all(Array.from({ length: 10 }, () => origins.hold(source("a"))));
  expect(await readFile(join(held[9]?.imageDir ?? "", "pages.img"), "utf8")).toBe("pages of a");
  await (await open()).hold(source("a"));
  expect(downloads).toBe(1);
});

it("says what is not in the store or of another runtime, to all who asked, and leaves nothing of it", async () => {
  const origins = await open();
  const asked = await Promise.allSettled([1, 2, 3].map(() => origins.hold(source("a"))));
  const missing = { status: "rejected", reason: expect.objectContaining({ code: "SNAPSHOT_MISSING" }) as unknown };
  expect(asked).toEqual([missing, missing, missing]);
  await commit("a");
  const foreign = (await open("r2")).hold(source("a"));
  await expect(foreign).rejects.toMatchObject({ code: "RESTORE_FAILED" });
  await expect(foreign).rejects.toThrow(/Snapshot default\/a was written by runsc r1, and this node has r2/);
  expect(downloads).toBe(0);
  expect(await here()).toEqual([]);
});

it("R24: needs room to be fetched; the least used one that nobody uses may go first", async () => {
  await commit("a");
  await commit("b");
  const origins = await open();
  full = new SubstrateError("NO_ROOM", "the disk is full");
  await expect(origins.hold(source("a"))).rejects.toMatchObject({ code: "NO_ROOM" });
  expect(await here()).toEqual([]);
  full = undefined;
  const a = await origins.hold(source("a"));
  const b = await origins.hold(source("b"));
  expect(origins.removables(0)).toEqual([]);
  await a.release();
  await b.release();
  inUse.add("b");
  expect(origins.removables(60_000)).toEqual([]);
  const [first, ...others] = origins.removables(0);
  expect([first?.name, others]).toEqual(["Snapshot default/a", []]);
  // somebody has come meanwhile
  const again = await origins.hold(source("a"));
  expect(await first?.remove()).toBe(false);
  await again.release();
  expect(await first?.remove()).toBe(true);
  expect(await here()).toEqual(["b"]);
});

it("a damaged copy is fetched again", async () => {
  await commit("a");
  const origins = await open();
  const held = await origins.hold(source("a"));
  await truncate(join(held.imageDir, "pages.img"), 3);
  await expect(origins.hold(source("a"))).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
  await held.release();
  const again = await origins.hold(source("a"));
  expect(await readFile(join(again.imageDir, "pages.img"), "utf8")).toBe("pages of a");
});

it.each(["ENOSPC", "EIO"])(
  "a fetch that cannot be written (%s) leaves nothing, and the next one works",
  async (code) => {
    await commit("a");
    const origins = await open();
    const failure = Object.assign(new Error(`${code}: a fault of the test, write`), { code });
    const unpack = vi.spyOn(engine, "unpack");
    unpack.mockImplementationOnce(async ({ file, table }) => {
      // as far as it came
      await Promise.all([file, `${table}.partial`].map((path) => writeFile(path, "half")));
      throw new SubstrateError("INTERNAL", failure.message, { cause: failure });
    });
    const asked = await Promise.allSettled([1, 2].map(() => origins.hold(source("a"))));
    const failed = { status: "rejected", reason: expect.objectContaining({ message: failure.message }) as unknown };
    expect(asked).toEqual([failed, failed]);
    expect(await here()).toEqual([]);
    const held = await origins.hold(source("a"));
    expect(await readFile(join(held.imageDir, "pages.img"), "utf8")).toBe("pages of a");
  },
);

it("goes with its Snapshot when nobody uses it: no load, no volume of an actor", async () => {
  await commit("a");
  await commit("b");
  const origins = await open();
  const a = await origins.hold(source("a"));
  await (await origins.hold(source("b"))).release();
  inUse.add("b");
  await origins.forget("a");
  await origins.forget("b");
  expect((await here()).sort()).toEqual(["a", "b"]);
  await a.release();
  expect(await here()).toEqual(["b"]);
  inUse.clear();
  // Remembered over a restart.
  await (await open()).sweep();
  expect(await here()).toEqual([]);
});

it("unused ones beyond the newest eight go after ten minutes", async () => {
  const origins = await open();
  for (let index = 0; index < 10; index += 1) {
    const made = await origins.make(`u${index}`, async (into) => {
      await writeFile(join(into, "image", "pages.img"), "x");
      const facts = { revision: "rev1", imageDigest: "", runtime: "r1", fidelity: "Memory", envDigest: "" } as const;
      return { facts: { ...facts, name: `default/u${index}`, createdAtMs: 0, volumes: [], rootfsTar: false } };
    });
    await made.release();
  }
  await origins.sweep();
  expect(await here()).toHaveLength(10);
  await origins.sweep(Date.now() + 700_000);
  expect(await here()).toHaveLength(8);
});

it("what a crash or a failure left unfinished is removed", async () => {
  const origins = await open();
  const failed = origins.make("a", () => Promise.reject(new SubstrateError("CHECKPOINT_FAILED", "no")));
  await expect(failed).rejects.toMatchObject({ code: "CHECKPOINT_FAILED" });
  expect(await here()).toEqual([]);
  for (const name of ["a.partial", "b.deleted", "c"]) await mkdir(join(dir, "origins", name));
  await open();
  expect(await here()).toEqual([]);
});

it("other content than was stored, of the same size, is fetched again", async () => {
  await commit("a");
  const origins = await open();
  const held = await origins.hold(source("a"));
  await held.release();
  await writeFile(join(held.imageDir, "pages.img"), "pages of b");
  await origins.hold(source("a"));
  expect(await readFile(join(held.imageDir, "pages.img"), "utf8")).toBe("pages of a");
  expect(downloads).toBe(2);
});
