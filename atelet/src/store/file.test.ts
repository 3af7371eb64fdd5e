import { chmod, mkdir, mkdtemp, open, readdir, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { kernelCalls } from "../writeback/kernel-calls.ts";
import { pageCache, pinFile } from "../writeback/page-cache.ts";
import { FileStore } from "./file.ts";
import { Flock } from "./flock.ts";
import { claimStore } from "./open.ts";

let dir: string;
let root: string;
let store: FileStore;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "file-store-"));
  root = join(dir, "store");
  store = await FileStore.open(root);
});

afterEach(async () => {
  await store.close();
  await rm(dir, { recursive: true });
});

const text = (content: string) => Buffer.from(content);

it("keeps what was put, in a folder that nobody else reads", async () => {
  const etag = await store.put("a/b/c.json", text("one"));
  expect(await store.get("a/b/c.json")).toEqual({ body: text("one"), etag });
  expect(await store.get("a/b/d.json")).toBeUndefined();
  expect(await store.get("a/b/c.json/d")).toBeUndefined();
  expect((await stat(root)).mode & 0o777).toBe(0o700);
});

it("R23: what is acknowledged is on the disk: COMPLETED promises that", async () => {
  const small = Buffer.alloc(1 << 20, 1);
  const large = Buffer.alloc(8 << 20, 1);
  await store.put("head.json", text("one"));
  for (const [name, bytes] of Object.entries({ small, large })) {
    await writeFile(join(dir, name), bytes);
    await store.putFile(`file-${name}`, join(dir, name));
    await store.putBytes(`bytes-${name}`, Uint8Array.from(bytes).buffer);
  }
  await store.copy("file-large", "copy");
  const cache = pageCache(kernelCalls());
  for (const key of await store.list("")) {
    expect(cache.inspect(await pinFile(join(root, key))), key).toMatchObject({ dirtyPages: 0, writebackPages: 0 });
  }
});

it("writes on a condition only if it holds", async () => {
  const first = await store.put("k", text("1"), { ifNoneMatch: "*" });
  expect(first).toBeDefined();
  expect(await store.put("k", text("2"), { ifNoneMatch: "*" })).toBeUndefined();
  const second = await store.put("k", text("3"), { ifMatch: first ?? "" });
  expect(await store.put("k", text("4"), { ifMatch: first ?? "" })).toBeUndefined();
  expect(await store.put("absent", text("4"), { ifMatch: first ?? "" })).toBeUndefined();
  expect(await store.get("k")).toEqual({ body: text("3"), etag: second });
});

it("lets exactly one of many racing writers win, also through another instance", async () => {
  const other = await FileStore.open(root);
  const writes = Array.from({ length: 20 }, (_, i) =>
    (i % 2 ? store : other).put("k", text(String(i)), { ifNoneMatch: "*" }),
  );
  const won = (await Promise.all(writes)).filter((etag) => etag !== undefined);
  await other.close();
  expect(won).toEqual([(await store.get("k"))?.etag]);
});

it.each(["", "/etc/passwd", "a/../../b", "a//b", ".lock", "a/.tmp/b", "a/", "a b", "a\0b", "x".repeat(300)])(
  "refuses the key %j",
  async (key) => {
    await expect(store.get(key)).rejects.toMatchObject({ code: "INVALID" });
    await expect(store.put(key, text(""))).rejects.toMatchObject({ code: "INVALID" });
    await expect(store.list(`../${key}/`)).rejects.toMatchObject({ code: "INVALID" });
  },
);

it("lists the keys under a prefix and leaves no folder behind", async () => {
  for (const key of ["a/1/x", "a/1/y", "a/2", "ab/1", "b"]) await store.put(key, text(key));
  expect(await store.list("a/")).toEqual(["a/1/x", "a/1/y", "a/2"]);
  expect(await store.list("")).toEqual(["a/1/x", "a/1/y", "a/2", "ab/1", "b"]);
  expect(await store.list("none/")).toEqual([]);
  for (const key of await store.list("")) await store.delete(key);
  await store.delete("a/2");
  expect((await readdir(root)).sort()).toEqual([".lock", ".tmp"]);
  expect(await readdir(join(root, ".tmp"))).toEqual([]);
});

it("puts and deletes in the same folder at once without losing an object", async () => {
  for (let round = 0; round < 20; round += 1) {
    await store.put("f/g/old", text("old"));
    await Promise.all([store.delete("f/g/old"), store.put("f/g/new", text("new"))]);
    expect(await store.list("f/")).toEqual(["f/g/new"]);
    await store.delete("f/g/new");
  }
});

it.each([5, 300_000, (16 << 20) + 3])(
  "stores %i bytes for ever, and gives exactly the range that is asked for",
  async (size) => {
    const content = Buffer.from(new ArrayBuffer(size)).fill("0123456789abcdef");
    await store.putBytes("packs/1-1-0", content.buffer.slice(0));
    await store.putBytes("packs/1-1-0", content.buffer.slice(0));
    expect(await readdir(join(root, ".tmp"))).toEqual([]);
    for (const [offset, length] of [
      [0, size],
      [2, Math.min(size - 2, 270_000)],
      [size - 1, 1],
    ] as const) {
      const range = Buffer.from(await store.getRange("packs/1-1-0", offset, length));
      expect(range.equals(content.subarray(offset, offset + length))).toBe(true);
    }
    const code = { code: "SNAPSHOT_DAMAGED" };
    await expect(store.getRange("packs/1-1-0", 3, size)).rejects.toMatchObject(code);
    await expect(store.getRange("packs/1-1-0", size, 1)).rejects.toMatchObject(code);
    await expect(store.getRange("packs/1-1-1", 0, 400_000)).rejects.toMatchObject(code);
    await expect(store.putBytes("../x", new ArrayBuffer(1))).rejects.toMatchObject({ code: "INVALID" });
  },
);

it("stores and fetches files of many chunks, checked", async () => {
  const source = join(dir, "source");
  const content = Buffer.alloc(40 * 1024 * 1024 + 5, "0123456789abcdef");
  await writeFile(source, content);
  const stored = await store.putFile("big/file", source);
  expect(stored.sizeBytes).toBe(content.length);
  await store.getFile("big/file", join(dir, "fetched"), stored);
  expect((await readFile(join(dir, "fetched"))).equals(content)).toBe(true);
});

it.each([
  ["a flipped byte", (bytes: Buffer) => bytes.fill(1, 7, 8)],
  ["a lost tail", (bytes: Buffer) => bytes.subarray(0, -1)],
  ["nothing left", () => Buffer.alloc(0)],
])("finds %s", async (_, damage) => {
  const source = join(dir, "source");
  await writeFile(source, "some bytes of memory");
  const stored = await store.putFile("f", source);
  await writeFile(join(root, "f"), damage(await readFile(join(root, "f"))));
  const fetching = store.getFile("f", join(dir, "fetched"), stored);
  await expect(fetching).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
  expect(await readdir(dir)).not.toContain("fetched");
});

it("gives an object a second key that lives by itself", async () => {
  await store.put("a/b", text("one"));
  await store.copy("a/b", "c/d");
  await store.copy("a/b", "c/d");
  expect((await stat(join(root, "c/d"))).ino).toBe((await stat(join(root, "a/b"))).ino);
  await store.put("a/b", text("two"));
  expect((await store.get("c/d"))?.body).toEqual(text("one"));
  await store.copy("a/b", "c/d");
  await store.delete("a/b");
  expect((await store.get("c/d"))?.body).toEqual(text("two"));
  await expect(store.copy("a/b", "e/f")).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
  expect(await readdir(root)).toEqual([".lock", ".tmp", "c"]);
});

it("says which object is missing, and whose disk or file failed", async () => {
  const expected = { sizeBytes: 1, sha256: "" };
  await expect(store.getFile("f", join(dir, "x"), expected)).rejects.toMatchObject({
    code: "SNAPSHOT_DAMAGED",
    message: expect.stringContaining("f is missing") as string,
  });
  await expect(store.putFile("f", join(dir, "no-such"))).rejects.toMatchObject({
    code: "INTERNAL",
    message: expect.stringContaining("no-such") as string,
  });
  await store.put("f", text("1"));
  await expect(store.getFile("f", join(dir, "no-folder", "x"), expected)).rejects.toMatchObject({ code: "INTERNAL" });
  expect(await readdir(join(root, ".tmp"))).toEqual([]);
});

it("never takes an exchanged or unmounted folder for an empty store", async () => {
  await store.put("k", text("1"));
  await rename(root, join(dir, "moved"));
  await expect(store.get("k")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  await mkdir(root);
  await expect(store.get("k")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
});

it("refuses a folder that others can read, and closes an empty one", async () => {
  await chmod(root, 0o755);
  await expect(FileStore.open(root)).rejects.toMatchObject({ code: "INVALID" });
  const empty = join(dir, "empty");
  await mkdir(empty, { mode: 0o755 });
  await (await FileStore.open(empty)).close();
  expect((await stat(empty)).mode & 0o777).toBe(0o700);
});

it("removes folders of a removal that was cut off before it came to them", async () => {
  await store.put("a/1/x", text("one"));
  await store.put("a/head", text("two"));
  await rm(join(root, "a/1/x"));
  await store.delete("a/1/x");
  expect(await readdir(join(root, "a"))).toEqual(["head"]);
  await mkdir(join(root, "a/2"));
  await store.delete("a/head");
  expect(await readdir(root)).toEqual([".lock", ".tmp"]);
});

it("removes what a dead writer left, and only that", async () => {
  const temporary = join(root, ".tmp");
  for (const name of ["old", "written"]) {
    await writeFile(join(temporary, name), "");
    await utimes(join(temporary, name), 0, 0);
  }
  const writer = await open(join(temporary, "written"));
  expect(new Flock().try(writer.fd)).toBe(true);
  await writeFile(join(temporary, "new"), "");
  const opened = await FileStore.open(root);
  expect((await readdir(temporary)).sort()).toEqual(["new", "written"]);
  // regression: what an atelet left that was killed during an upload stayed until the start after the next
  await expect.poll(() => readdir(temporary), { timeout: 10_000 }).toEqual(["written"]);
  await writer.close();
  await opened.close();
});

it("belongs to the cluster that claimed it", async () => {
  await claimStore(store, "one", "file:///s");
  await claimStore(store, "one", "file:///s");
  await expect(claimStore(store, "two", "file:///s")).rejects.toMatchObject({ code: "STORE_FOREIGN" });
});
