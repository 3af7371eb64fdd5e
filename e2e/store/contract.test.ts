import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { PageEngine } from "@substrate/atelet/pages/page-engine.ts";
import { ObjectSnapshotStore } from "@substrate/atelet/store/object-snapshots.ts";
import { claimStore, openStore } from "@substrate/atelet/store/open.ts";
import { type StoreSettings, storeSettings } from "@substrate/atelet/store/settings.ts";
import { S3Server } from "./s3-server.ts";

const engine = new PageEngine();
let dir: string;
let server: S3Server;
let round = 0;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "contract-"));
  server = await S3Server.start(dir);
});

afterAll(async () => {
  await engine.close();
  await server.kill();
  await rm(dir, { recursive: true });
});

type Store = Awaited<ReturnType<typeof openStore>>;

describe.each(["folder", "bucket"] as const)("a store in a %s", (kind) => {
  let store: Store;
  let settings: StoreSettings;
  /** Where its objects lie as files. */
  let root: string;

  // once, as the thread of a bucket takes its time to begin
  beforeAll(async () => {
    settings =
      kind === "folder" ? storeSettings("default", `file://${dir}/folder`) : server.settings({ prefix: "/p/q" });
    root = kind === "folder" ? join(dir, "folder") : join(server.bucketDir, "p/q");
    store = await openStore(settings);
    return () => store.close();
  });

  beforeEach(async () => {
    round += 1;
    await store.deleteAll(await store.list(""));
  });

  const text = (content: string) => Buffer.from(content);

  it("keeps, lists and deletes objects", async () => {
    const etag = await store.put("a/b/c.json", text("one"));
    expect(await store.get("a/b/c.json")).toEqual({ body: text("one"), etag });
    expect(await store.get("a/b/d.json")).toBeUndefined();
    for (const key of ["a/1/x", "ab/1", "b", "none-empty"]) await store.put(key, text(""));
    expect(await store.list("a/")).toEqual(["a/1/x", "a/b/c.json"]);
    expect(await store.list("")).toEqual(["a/1/x", "a/b/c.json", "ab/1", "b", "none-empty"]);
    expect(await store.list("none/")).toEqual([]);
    await store.delete("b");
    await store.delete("b");
    await store.deleteAll(["a/1/x", "not-there", "ab/1"]);
    expect(await store.list("")).toEqual(["a/b/c.json", "none-empty"]);
    await expect(store.get("../x")).rejects.toMatchObject({ code: "INVALID" });
    await expect(store.list("x")).rejects.toMatchObject({ code: "INVALID" });
  });

  it("writes on a condition only if it holds", async () => {
    const first = (await store.put("k", text("1"), { ifNoneMatch: "*" })) ?? "";
    expect(first).not.toBe("");
    expect(await store.put("k", text("2"), { ifNoneMatch: "*" })).toBeUndefined();
    const second = await store.put("k", text("3"), { ifMatch: first });
    expect(await store.put("k", text("4"), { ifMatch: first })).toBeUndefined();
    expect(await store.put("absent", text("4"), { ifMatch: first })).toBeUndefined();
    expect(await store.get("k")).toEqual({ body: text("3"), etag: second });
    await store.deleteAll(["k", "absent"]);
  });

  it("lets exactly one of 20 racing writers win, and one of 20 racing clusters claim it", async () => {
    const other = await openStore(settings);
    const writes = Array.from({ length: 20 }, (_, i) =>
      (i % 2 ? store : other).put("k", text(String(i)), { ifNoneMatch: "*" }),
    );
    const won = (await Promise.all(writes)).filter((etag) => etag !== undefined);
    expect(won).toEqual([(await store.get("k"))?.etag]);
    const claims = await Promise.allSettled(
      Array.from({ length: 20 }, (_, i) => claimStore(i % 2 ? store : other, `cluster-${i}`, settings.url)),
    );
    expect(claims.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    for (const claim of claims)
      if (claim.status === "rejected") expect(claim.reason).toMatchObject({ code: "STORE_FOREIGN" });
    await other.close();
  });

  it("keeps an actor's generations, from the first claim to the deletion", async () => {
    const snapshots = new ObjectSnapshotStore(store, engine);
    const prefix = { clusterUid: "c", namespaceUid: "n", actorUid: "a" };
    const tag = { ...prefix, actorUid: "t" };
    const image = join(dir, `image-${round}`);
    await mkdir(image);
    for (const [name, size] of [
      ["pages.img", 9 << 20],
      ["checkpoint.img", 1000],
    ] as const) {
      await writeFile(join(image, name), randomBytes(size));
    }
    const manifest = (generation: number, epoch: number) => ({
      format: 1 as const,
      actor: { uid: "a", namespace: "d", name: "a" },
      generation,
      epoch,
      revision: "r",
      imageDigest: "sha256:0",
      fidelity: "Memory" as const,
      sandbox: { class: "gvisor" as const, runtime: "x", architecture: "amd64" },
      createdAt: "2026-01-01T00:00:00Z",
    });
    const content = (generation: number) => ({
      dirs: [image],
      pages: { table: join(dir, `table-${round}-${generation}`), bases: [] },
    });
    await snapshots.claim(prefix, 1);
    await snapshots.commit(prefix, manifest(1, 1), content(1));
    await snapshots.commit(prefix, manifest(2, 1), content(2));
    expect(await snapshots.claim(prefix, 2)).toMatchObject({ epoch: 2, generation: 2, manifest: "2-1/manifest.json" });
    await expect(snapshots.commit(prefix, manifest(3, 1), content(3))).rejects.toMatchObject({ code: "SUPERSEDED" });
    await snapshots.copy({ prefix, key: "2-1/manifest.json" }, tag, { uid: "t", namespace: "d", name: "t" });
    await snapshots.collect(prefix, 1, 1);
    await snapshots.deletePrefix(prefix);
    expect((await store.list("")).every((key) => key.startsWith("c/n/t/"))).toBe(true);
    await mkdir(join(dir, `fetched-${round}`));
    const [table, index] = [join(dir, `fetched-table-${round}`), join(dir, `fetched-index-${round}`)];
    await snapshots.download(tag, "1-1/manifest.json", {
      dir: join(dir, `fetched-${round}`),
      pages: { table, index, reuse: [] },
    });
    const [stored, fetched] = await Promise.all(
      ["image", "fetched"].map((folder) => readFile(join(dir, `${folder}-${round}`, "pages.img"))),
    );
    expect(stored?.equals(fetched ?? Buffer.alloc(0))).toBe(true);
    await snapshots.deletePrefix(tag);
    expect(await store.list("")).toEqual([]);
  });

  it("stores bytes for ever, and gives exactly the range that is asked for", async () => {
    const size = (16 << 20) + 3;
    const content = randomBytes(size);
    const bytes = (): ArrayBuffer => new Uint8Array(content).buffer;
    await store.putBytes("packs/1-1-0", bytes());
    await store.putBytes("packs/1-1-0", bytes());
    for (const [offset, length] of [
      [0, size],
      [2, 300_000],
      [size - 1, 1],
    ] as const) {
      const range = Buffer.from(await store.getRange("packs/1-1-0", offset, length));
      expect(range.equals(content.subarray(offset, offset + length))).toBe(true);
    }
    const code = { code: "SNAPSHOT_DAMAGED" };
    await expect(store.getRange("packs/1-1-0", 3, size)).rejects.toMatchObject(code);
    await expect(store.getRange("packs/1-1-0", size, 1)).rejects.toMatchObject(code);
    await expect(store.getRange("packs/1-1-1", 0, 400_000)).rejects.toMatchObject(code);
  });

  it("stores files of every size and gives back what was stored, or says that it is damaged", async () => {
    const part = 8 << 20;
    for (const size of [0, 1, part, 3 * part + 1]) {
      const [from, to] = [join(dir, `from-${round}-${size}`), join(dir, `to-${round}-${size}`)];
      await writeFile(from, randomBytes(size));
      const stored = await store.putFile(`f/${size}`, from);
      expect(stored.sizeBytes).toBe(size);
      await store.copy(`f/${size}`, `g/${size}`);
      await store.getFile(`g/${size}`, to, stored);
      expect((await readFile(to)).equals(await readFile(from))).toBe(true);
      await expect(store.getFile(`g/${size}`, `${to}.2`, { ...stored, sizeBytes: size + 1 })).rejects.toMatchObject({
        code: "SNAPSHOT_DAMAGED",
      });
      const foreign = { ...stored, sha256: "0".repeat(64) };
      await expect(store.getFile(`g/${size}`, `${to}.2`, foreign)).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
      await expect(readFile(`${to}.2`)).rejects.toThrow("ENOENT");
      if (size > part) {
        await truncate(join(root, `f/${size}`), size - 10);
        await expect(store.getFile(`f/${size}`, `${to}.3`, stored)).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
      }
      await Promise.all([from, to].map((path) => rm(path)));
    }
    const absent = { sizeBytes: 0, sha256: "" };
    await expect(store.getFile("none", join(dir, "none"), absent)).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
    await expect(store.copy("none", "other")).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
    await expect(store.putFile("k", join(dir, "none"))).rejects.toMatchObject({ code: "INTERNAL" });
    expect((await store.list("f/")).length).toBe(4);
  });
});
