import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { S3Store } from "@substrate/atelet/store/s3/bucket.ts";
import { defaultLimits, type S3Limits } from "@substrate/atelet/store/s3/limits.ts";
import { FaultyProxy, type Fault } from "./faulty-proxy.ts";
import { S3Server } from "./s3-server.ts";

const mib = 1 << 20;
const limits: S3Limits = { ...defaultLimits, partBytes: 5 * mib, pauseMs: 2 };
const bytes = randomBytes(4 * mib);

let dir: string;
let server: S3Server;
let proxy: FaultyProxy;
let store: S3Store;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "faults-"));
  server = await S3Server.start(dir);
});

afterAll(async () => {
  await server.kill();
  await rm(dir, { recursive: true });
});

beforeEach(async () => {
  proxy = await FaultyProxy.start(server.port);
  store = await open();
});

afterEach(async () => {
  await store.close();
  proxy.stop();
});

function open(some: Partial<S3Limits> = {}): Promise<S3Store> {
  return S3Store.open(server.settings({ port: proxy.port }), { ...limits, ...some });
}

const put = (key: string) => store.putBytes(key, new Uint8Array(bytes).buffer);

async function holds(key: string): Promise<void> {
  const read = Buffer.from(await store.getRange(key, mib, 3 * mib));
  expect(read.equals(bytes.subarray(mib))).toBe(true);
}

/** From now on, so many requests in a row. */
function fail(fault: Fault, times = Infinity): void {
  let left = times;
  proxy.seen.length = 0;
  proxy.faults = () => (left-- > 0 ? fault : undefined);
}

it.each([2, 3])("goes on with a store that fails every %i. request", async (n) => {
  const kinds: Fault[] = [
    { answer: { status: 500, code: "InternalError" } },
    { answer: { status: 503, code: "SlowDown" } },
    { cutUpAt: 0 },
    { answer: { status: 409, code: "OperationAborted" } },
  ];
  // by key: whoever is repeated comes next to others
  const tries = new Map<string, number>();
  proxy.faults = ({ url = "", method = "" }, nth) => {
    const done = tries.get(`${method} ${url}`) ?? 0;
    tries.set(`${method} ${url}`, done + 1);
    return nth % n === 0 && done < 2 ? kinds[nth % kinds.length] : undefined;
  };
  const keys = Array.from({ length: 8 }, (_, i) => `n${n}/pack-${i}`);
  await Promise.all(keys.map(put));
  await Promise.all(keys.map(holds));
  await store.deleteAll(keys);
  expect(await store.list(`n${n}/`)).toEqual([]);
});

it("repeats few of the requests to a store that fails for long, and works once it is well again", async () => {
  fail({ answer: { status: 500, code: "InternalError" } });
  for (let i = 0; i < 30; i += 1)
    await expect(store.get(`k-${i}`)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  expect(proxy.seen.length).toBeLessThanOrEqual(30 + 40);
  fail({}, 0);
  await put("well");
  await holds("well");
});

it("slows down when it is told to, and says so when that does not help", async () => {
  fail({ answer: { status: 503, code: "SlowDown", headers: { "retry-after": "1" } } }, 1);
  const startedAt = performance.now();
  await put("slow-down");
  expect(performance.now() - startedAt).toBeGreaterThan(900);
  fail({ answer: { status: 503, code: "SlowDown" } });
  await expect(put("slow-down")).rejects.toThrow(/asks for fewer requests \(503 SlowDown\).*raise its limits/);
  expect(proxy.seen).toHaveLength(5);
});

it("sends and fetches again what was cut, cut short or changed on its way", async () => {
  for (const fault of [{ cutUpAt: mib }, { cutDownAt: 10 }, { mangled: "up" }] satisfies Fault[]) {
    fail(fault, 2);
    await put("pack");
    fail({}, 0);
    await holds("pack");
  }
  fail({ cutDownAt: 2 * mib }, 2);
  await holds("pack");
  fail({ cutDownAt: 1 }, 2);
  expect((await store.get("pack"))?.body.equals(bytes)).toBe(true);
  const file = join(dir, "file");
  await writeFile(file, bytes);
  const stored = await store.putFile("file", file);
  fail({ cutDownAt: mib }, 2);
  await store.getFile("file", join(dir, "again"), stored);
});

it("says what is wrong with what comes, and calls damaged only what is", async () => {
  await put("pack");
  fail({ cutDownAt: mib });
  await expect(store.getRange("pack", 0, 3 * mib)).rejects.toMatchObject({
    code: "STORE_UNAVAILABLE",
    message: expect.stringMatching(/answers in part or in disorder \(.*after 1048576 of 3145728 bytes/) as string,
  });
  fail({ shorterBy: 10 });
  await expect(store.getRange("pack", 0, mib)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  fail({ cutUpAt: mib });
  await expect(put("lost")).rejects.toThrow(/does not answer \((ECONNRESET|EPIPE)\)/);
  fail({ mangled: "up" });
  await expect(put("lost")).rejects.toThrow(/bytes are changed on their way to .*use https/);
  fail({}, 0);
  expect(await store.get("lost")).toBeUndefined();
  await expect(store.getRange("pack", 3 * mib, 2 * mib)).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
  const file = join(dir, "whole");
  await writeFile(file, bytes);
  const stored = await store.putFile("whole", file);
  fail({ mangled: "down" });
  await expect(store.getFile("whole", join(dir, "changed"), stored)).rejects.toMatchObject({
    code: "SNAPSHOT_DAMAGED",
  });
});

it("tells a condition that did not hold from a store that can't answer", async () => {
  for (const [status, code] of [
    [412, "PreconditionFailed"],
    [409, "ConditionalRequestConflict"],
  ] as const) {
    fail({ answer: { status, code } });
    expect(await store.put("head", Buffer.from("1"), { ifNoneMatch: "*" })).toBeUndefined();
    expect(proxy.seen).toHaveLength(1);
    await expect(put("head")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  }
  fail({ answer: { status: 503, code: "SlowDown" } }, 2);
  expect(await store.put("head", Buffer.from("1"), { ifNoneMatch: "*" })).toBeDefined();
  await store.delete("head");
});

it("explains a wrong clock and a full store, and repeats neither to no end", async () => {
  fail({ answer: { status: 403, code: "RequestTimeTooSkewed" } });
  await expect(put("k")).rejects.toThrow(/the clock of this node differs from the server's.*set it right/);
  for (const [status, code] of [
    [507, "InsufficientStorage"],
    [403, "QuotaExceeded"],
  ] as const) {
    fail({ answer: { status, code } });
    await expect(put("k")).rejects.toThrow(/has no space left: .*free or add space/);
    expect(proxy.seen).toHaveLength(1);
  }
});

it("works through a link of 100 KB/s and gives up one of 1 KB/s", async () => {
  const hurried = await open({ idleMs: 500, partAttemptMs: 15_000 });
  try {
    const some = bytes.subarray(0, 200_000);
    fail({ bytesPerSecond: 100_000 });
    await hurried.putBytes("slow", new Uint8Array(some).buffer);
    const read = Buffer.from(await hurried.getRange("slow", 0, some.length));
    expect(read.equals(some)).toBe(true);
    fail({ bytesPerSecond: 1_000 });
    const large = new ArrayBuffer(16 * mib);
    const results = await Promise.allSettled([
      hurried.getRange("slow", 0, some.length),
      hurried.putBytes("never", large),
    ]);
    for (const one of results) {
      expect(one).toMatchObject({ status: "rejected", reason: { code: "STORE_UNAVAILABLE" } });
      expect(String((one as PromiseRejectedResult).reason)).toMatch(
        /is too slow \(\d+ bytes went through a connection/,
      );
    }
    expect(proxy.seen).toHaveLength(4);
  } finally {
    await hurried.close();
  }
});
