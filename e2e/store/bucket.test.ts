import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, it } from "vitest";
import { S3Store } from "@substrate/atelet/store/s3/bucket.ts";
import { defaultLimits, type S3Limits } from "@substrate/atelet/store/s3/limits.ts";
import { eventually } from "../support/poll.ts";
import { Proxy, S3Server } from "./s3-server.ts";

const run = promisify(execFile);
const partBytes = 5 << 20;
const small: S3Limits = { ...defaultLimits, partBytes, copyBytes: partBytes };

let dir: string;
let server: S3Server;
let proxy: Proxy | undefined;
let mounted = false;
const stores: S3Store[] = [];

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "bucket-"));
});

afterEach(async () => {
  for (const store of stores.splice(0)) await store.close();
  proxy?.stop();
  proxy = undefined;
  await server.kill();
  if (mounted) await run("umount", [join(dir, "data")]);
  mounted = false;
  await rm(dir, { recursive: true });
});

async function open(options: Parameters<S3Server["settings"]>[0] = {}, limits: S3Limits = small): Promise<S3Store> {
  const store = await S3Store.open(server.settings(options), limits);
  stores.push(store);
  return store;
}

async function file(name: string, sizeBytes: number): Promise<string> {
  const path = join(dir, name);
  await writeFile(path, randomBytes(sizeBytes));
  return path;
}

it("counts nothing of an upload whose server was killed, and does it again when the server is back", async () => {
  server = await S3Server.start(dir);
  proxy = new Proxy(server.port);
  const store = await open({ port: await proxy.start() });
  const source = await file("large", 8 * partBytes);
  const { sentBytes } = proxy;
  let killed: Promise<void> | undefined;
  const between = proxy;
  proxy.onSent = () => {
    if (between.sentBytes - sentBytes > 3 * partBytes) killed ??= server.kill();
  };
  await expect(store.putFile("a/1-1/pages.img", source)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  await killed;
  await expect(store.get("a/1-1/pages.img")).rejects.toThrow(/default \(s3:\/\/snapshots.*does not answer \(ECONN/);
  await server.run("key", "hush");
  expect(await store.list("")).toEqual([]);
  const stored = await store.putFile("a/1-1/pages.img", source);
  await store.copy("a/1-1/pages.img", "b/1-1/pages.img");
  await store.getFile("b/1-1/pages.img", join(dir, "fetched"), stored);
  expect((await readFile(join(dir, "fetched"))).equals(await readFile(source))).toBe(true);
});

it("gives up a server that stands still, within its bounds, and goes on when it answers", async () => {
  server = await S3Server.start(dir);
  proxy = new Proxy(server.port);
  const brief = { attemptMs: 400, requestMs: 1_500, partAttemptMs: 700, partMs: 2_000, idleMs: 500, connectMs: 300 };
  const store = await open({ port: await proxy.start() }, { ...small, attemptMs: 5_000, idleMs: 5_000 });
  const limited = await open({ port: server.port });
  const stored = await limited.putFile("k", await file("large", 3 * partBytes));
  const slow = new Proxy(server.port);
  try {
    const hurried = await S3Store.open(server.settings({ port: await slow.start() }), { ...small, ...brief });
    stores.push(hurried);
    slow.standStill(true);
    const startedAt = performance.now();
    const results = await Promise.allSettled([
      hurried.put("x", Buffer.from("1")),
      hurried.getFile("k", join(dir, "fetched"), stored),
      hurried.putFile("l", join(dir, "large")),
    ]);
    for (const one of results) {
      expect(one).toMatchObject({ status: "rejected", reason: { code: "STORE_UNAVAILABLE" } });
      expect(String((one as PromiseRejectedResult).reason)).toContain("does not answer");
    }
    // the sum of all bounds of one, and as much for the clean-up of an upload
    expect(performance.now() - startedAt).toBeLessThan(30_000);
    await expect(readFile(join(dir, "fetched"))).rejects.toThrow("ENOENT");
    slow.standStill(false);
    await eventually(() => hurried.getFile("k", join(dir, "fetched"), stored), { deadlineMs: 10_000 });
  } finally {
    slow.stop();
  }
  expect(await store.list("")).toContain("k");
});

it("says that the server's disk is full and leaves nothing there that counts", async () => {
  await mkdir(join(dir, "data"));
  await run("mount", ["-t", "tmpfs", "-o", "size=24m", "tmpfs", join(dir, "data")]);
  mounted = true;
  server = await S3Server.start(dir);
  const store = await open();
  const kept = await store.putFile("a/small", await file("small", 1000));
  await expect(store.putFile("a/large", await file("large", 8 * partBytes))).rejects.toMatchObject({
    code: "STORE_UNAVAILABLE",
    message: expect.stringMatching(/writing a\/large: /) as string,
  });
  expect(await store.list("")).toEqual(["a/small"]);
  await store.getFile("a/small", join(dir, "fetched"), kept);
  await store.putFile("a/again", join(dir, "small"));
});

it("says what is wrong: the keys, the bucket, the folder of the keys", async () => {
  server = await S3Server.start(dir);
  await expect(open({ bucket: "not-there" })).rejects.toThrow(/there is no bucket not-there at http:.*create it/);
  const folder = join(dir, "other");
  await expect(open({ credentialsDir: folder })).rejects.toThrow(/there is no .*other\/accessKeyId: .*--store-cred/);
  await mkdir(folder);
  await writeFile(join(folder, "accessKeyId"), "key");
  await writeFile(join(folder, "secretAccessKey"), "wrong");
  await expect(open({ credentialsDir: folder })).rejects.toThrow(/refuses the keys in .*other: SignatureDoesNotMatch/);
  await writeFile(join(folder, "accessKeyId"), "stranger");
  const refused: unknown = await open({ credentialsDir: folder }).catch((error: unknown) => error);
  expect(refused).toMatchObject({ code: "STORE_UNAVAILABLE" });
  expect(String(refused)).toContain("refuses the keys");
  expect(String(refused)).not.toContain("wrong");
});

it("takes rotated keys without a restart", async () => {
  server = await S3Server.start(dir);
  const store = await open();
  await store.put("k", Buffer.from("1"));
  await server.kill();
  await server.run("key2", "hush2");
  await expect(store.get("k")).rejects.toThrow("refuses the keys");
  await server.writeKeys("key2", "hush2");
  await eventually(
    async () => {
      expect((await store.get("k"))?.body.toString()).toBe("1");
    },
    { deadlineMs: 10_000 },
  );
});

it("takes memory for its parts only, whatever a file's size", async () => {
  server = await S3Server.start(dir);
  const store = await open({}, { ...small, parallelParts: 2 });
  const warm = await store.putFile("warm", await file("warm", 4 * partBytes));
  await store.getFile("warm", join(dir, "warm2"), warm);
  const source = await file("large", 100 << 20);
  const before = process.memoryUsage().arrayBuffers;
  let most = 0;
  const watch = setInterval(() => {
    most = Math.max(most, process.memoryUsage().arrayBuffers - before);
  }, 5);
  try {
    await store.getFile("large", join(dir, "fetched"), await store.putFile("large", source));
  } finally {
    clearInterval(watch);
  }
  expect(most).toBeLessThan(60 << 20);
});

it("refuses a server that ignores conditions", async () => {
  server = await S3Server.start(dir);
  const obliging = createServer((request, answer) => {
    request.resume();
    request.on("end", () => {
      const list = request.method === "GET";
      answer.writeHead(200, list ? { "content-type": "application/xml" } : { etag: '"1"' });
      answer.end(list ? "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>" : "");
    });
  }).listen(0, "127.0.0.1");
  await once(obliging, "listening");
  try {
    const { port } = obliging.address() as AddressInfo;
    await expect(open({ port })).rejects.toThrow(/ignores the conditions of writes.*use a server/);
  } finally {
    obliging.close();
    obliging.closeAllConnections();
  }
  await open();
  expect(await readdir(join(server.bucketDir, "substrate-probe")).catch(() => [])).toEqual([]);
});
