import fc from "fast-check";
import { createReadStream, createWriteStream } from "node:fs";
import { readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { PAGE_BYTES } from "./pages.ts";
import { randomPages, TestStore } from "./test-store.ts";

let store: TestStore;
beforeAll(async () => {
  store = await TestStore.create();
});
afterAll(() => store.remove());
beforeEach(async () => {
  store.packs.clear();
  for (const name of await readdir(store.dir)) await rm(`${store.dir}/${name}`);
});

const read = (name: string): Promise<Buffer> => readFile(store.local(name).file);

/** Each page by a number: 0 is zeros, equal numbers are equal pages, every third is compressible. */
function imageOf(numbers: readonly number[], cutBytes = 0): Buffer {
  const image = Buffer.alloc(numbers.length * PAGE_BYTES);
  for (const [at, number] of numbers.entries()) {
    let state = (number * 2_654_435_761) >>> 0 || 1;
    const words = number % 3 === 0 ? 8 : PAGE_BYTES / 4;
    for (let i = 0; number !== 0 && i < words; i += 1) {
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      image.writeInt32LE(state | 0, at * PAGE_BYTES + 4 * i);
    }
  }
  return image.subarray(0, Math.max(0, image.length - cutBytes));
}

const pageNumbers = fc.array(fc.oneof(fc.constant(0), fc.nat(40), fc.nat(100_000)), { maxLength: 700 });

describe("what is packed", () => {
  it("comes back byte for byte, with its table, whatever was reused", async () => {
    await fc.assert(
      fc.asyncProperty(pageNumbers, pageNumbers, fc.nat(PAGE_BYTES - 1), fc.nat(700), async (one, two, cut, edits) => {
        const first = imageOf(one, cut);
        const second = imageOf([...one.slice(edits), ...two.slice(0, 300), ...one.slice(0, edits)]);
        await store.store("one", first);
        const packed = await store.store("two", second, { base: store.local("one") });
        expect(packed.newPages).toBeLessThanOrEqual(Math.min(300, two.length) + 1);
        for (const name of ["a", "b", "c"]) await rm(store.local(name).file, { force: true });
        await store.fetch("one", "a");
        await store.fetch("two", "b");
        const reusing = await store.fetch("two", "c", { reuse: [store.local("one")] });
        expect((await read("a")).equals(first)).toBe(true);
        expect((await read("b")).equals(second)).toBe(true);
        expect((await read("c")).equals(second)).toBe(true);
        expect(reusing.fetchedPages).toBeLessThanOrEqual(Math.min(300, two.length) + 1);
        expect(await readFile(store.local("c").table)).toEqual(await readFile(store.local("two").table));
        expect(await store.engine.verify(store.local("c"))).toBeUndefined();
      }),
      { numRuns: 25 },
    );
  });

  it("is handed over and asked for within the bounds of a transfer", async () => {
    const image = randomPages(15_000);
    const { file, table, index } = store.local("large");
    await writeFile(file, image);
    const held = { now: 0, most: 0, calls: 0, mostCalls: 0, started: 0 };
    /** Holds each piece until as many are under way as there may be. */
    const hold = async (bytes: number, atOnce: number): Promise<void> => {
      held.started += 1;
      held.now += bytes;
      held.calls += 1;
      held.most = Math.max(held.most, held.now);
      held.mostCalls = Math.max(held.mostCalls, held.calls);
      const round = Math.ceil(held.started / atOnce) * atOnce;
      const untilMs = performance.now() + 10_000;
      while (held.started < round && performance.now() < untilMs) await delay(2);
      held.now -= bytes;
      held.calls -= 1;
    };
    const packed = await store.engine.pack({
      file,
      table,
      keyPrefix: "large-",
      put: async (...pack) => {
        await hold(pack[2], 2);
        return store.put(...pack);
      },
    });
    expect(held).toMatchObject({ most: 32 << 20, mostCalls: 2 });
    await writeFile(index, packed.index);
    Object.assign(held, { most: 0, mostCalls: 0, started: 0 });
    await store.fetch("large", "back", {
      get: async (...range) => {
        await hold(range[2], 4);
        return store.get(...range);
      },
    });
    expect(held.most).toBeLessThanOrEqual(40 << 20);
    expect(held.mostCalls).toBeGreaterThan(2);
    expect((await read("back")).equals(image)).toBe(true);
  });

  it("is the same for the same image and base", async () => {
    const image = imageOf(Array.from({ length: 600 }, (_none, i) => i % 400));
    const packed = await store.store("one", image);
    const again = await store.store("one", image);
    expect(again).toEqual(packed);
    expect(packed).toMatchObject({ newPages: 399, sizeBytes: image.length });
  });

  it("has no packs if it is empty or all zeros, and comes back with holes", async () => {
    for (const pages of [0, 3000]) {
      expect(await store.store("one", Buffer.alloc(pages * PAGE_BYTES))).toMatchObject({ packs: [], storedBytes: 0 });
      expect(await store.fetch("one", `empty${pages}`)).toMatchObject({ zeroPages: pages, fetchedBytes: 0 });
      expect(await store.engine.verify(store.local(`empty${pages}`))).toBeUndefined();
    }
  });

  it("of 20 generations stays below 1.65 of the image, in few packs", async () => {
    const pages = 2000;
    let image = randomPages(pages);
    let base = store.local("0");
    await store.store("0", image);
    let most = 0;
    for (let generation = 1; generation <= 20; generation += 1) {
      image = Buffer.from(image);
      for (let edit = 0; edit < pages * 0.15; edit += 1) {
        randomPages(1).copy(image, Math.floor(Math.random() * pages) * PAGE_BYTES);
      }
      const packed = await store.store(String(generation), image, { base });
      most = Math.max(most, store.storedBytes(packed.packs) / image.length);
      expect(packed.packs.length).toBeLessThan(25);
      base = store.local(String(generation));
    }
    expect(most).toBeLessThanOrEqual(1.65);
    await store.fetch("20", "back");
    expect((await read("back")).equals(image)).toBe(true);
  });
});

describe("what a base's packs are used for", () => {
  it("nothing of a pack that may not be used, all of a foreign one, of an own one only while half of it lives", async () => {
    const image = randomPages(600);
    await store.store("one", image);
    const base = store.local("one");
    const third = image.subarray(0, 200 * PAGE_BYTES);
    expect(await store.store("none", image, { base, use: () => "none" })).toMatchObject({ newPages: 600 });
    expect(await store.store("foreign", third, { base, use: () => "foreign" })).toMatchObject({ newPages: 0 });
    const own = await store.store("own", third, { base, use: () => "own" });
    expect(own).toMatchObject({ newPages: 200, packs: [expect.stringMatching(/^a\/packs\/own-0-[0-9a-f]{16}$/)] });
  });
});

describe("damage", () => {
  it("of any byte of a table or index is seen, and only costs the sharing", async () => {
    const image = randomPages(40);
    await store.store("one", image);
    for (const path of [store.local("one").table, store.local("one").index]) {
      const whole = await readFile(path);
      for (const at of [0, 7, 8, 15, 20, 33, 63, 64, 100, whole.length - 1]) {
        const bytes = Buffer.from(whole);
        bytes[at] = (bytes[at] ?? 0) ^ 0x10;
        await writeFile(path, bytes);
        const packed = await store.store("two", image, { base: store.local("one") });
        expect(packed.baseDamage).toContain(path);
        expect(packed.newPages).toBe(40);
        await rm(store.local("back").file, { force: true });
        await writeFile(store.local("two").index, packed.index);
        const back = await store.fetch("two", "back", { reuse: [store.local("one")] });
        expect(back.fetchedPages).toBe(40);
      }
      await writeFile(path, whole);
      await truncate(path, whole.length - 1);
      expect((await store.store("two", image, { base: store.local("one") })).baseDamage).toContain(path);
      await rm(path);
      expect((await store.store("two", image, { base: store.local("one") })).baseDamage).toContain(path);
      await writeFile(path, whole);
    }
  });

  it("of any byte of a pack, or a pack cut short, fails the download, names it, and leaves no file", async () => {
    const image = imageOf(Array.from({ length: 300 }, (_none, i) => i + 1));
    const { packs } = await store.store("one", image);
    const [key = ""] = packs;
    const whole = store.packs.get(key) ?? new ArrayBuffer(0);
    for (const at of [0, 5, whole.byteLength >> 1, whole.byteLength - 1]) {
      const bytes = whole.slice(0);
      new Uint8Array(bytes).fill(0x5a, at, at + 1);
      new Uint8Array(bytes).fill(0xa5, at, at + (new Uint8Array(whole)[at] === 0x5a ? 1 : 0));
      store.packs.set(key, bytes);
      await expect(store.fetch("one", "back")).rejects.toMatchObject({
        code: "SNAPSHOT_DAMAGED",
        message: expect.stringContaining(key) as string,
      });
    }
    store.packs.set(key, whole.slice(0, whole.byteLength - 10));
    await expect(store.fetch("one", "back")).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
    expect((await readdir(store.dir)).filter((name) => name.startsWith("back"))).toEqual([]);
  });

  it("of an index to unpack is seen before anything is written", async () => {
    await store.store("one", randomPages(3));
    const index = await readFile(store.local("one").index);
    index[70] = (index[70] ?? 0) ^ 1;
    await writeFile(store.local("one").index, index);
    await expect(store.fetch("one", "back")).rejects.toMatchObject({
      code: "SNAPSHOT_DAMAGED",
      message: "one.index has other content than was written",
    });
  });

  it("of an image is found by its table, is never packed, and never reused", async () => {
    const image = randomPages(600);
    await store.store("one", image);
    const one = store.local("one");
    const bad = Buffer.from(image);
    bad[300 * PAGE_BYTES + 9] = (bad[300 * PAGE_BYTES + 9] ?? 0) ^ 1;
    await writeFile(one.file, bad);
    expect(await store.engine.verify(one)).toMatch(/^one has other content than was written, in pages 256 to 511$/);
    await expect(store.engine.pack({ ...one, keyPrefix: "x-", put: store.put })).rejects.toMatchObject({
      code: "SNAPSHOT_DAMAGED",
    });
    const back = await store.fetch("one", "back", { reuse: [one] });
    expect(back.reuseDamage).toEqual([expect.stringContaining("other content")]);
    expect(back.reusedPages + back.fetchedPages).toBe(600);
    expect((await read("back")).equals(image)).toBe(true);
    await truncate(one.file, 100 * PAGE_BYTES);
    expect(await store.engine.verify(one)).toMatch(/bytes instead of/);
    await rm(store.local("back").file);
    expect(await store.fetch("one", "back", { reuse: [one] })).toMatchObject({ reusedPages: 0, fetchedPages: 600 });
    expect((await read("back")).equals(image)).toBe(true);
  });

  it("a missing or damaged table of the image itself is made anew", async () => {
    const image = randomPages(30);
    await store.store("one", image);
    const one = store.local("one");
    const whole = await readFile(one.table);
    await writeFile(one.table, "rubbish");
    await store.engine.pack({ ...one, keyPrefix: "x-", put: store.put });
    expect(await readFile(one.table)).toEqual(whole);
  });
});

describe("an end in the middle", () => {
  it("by the caller's signal, or a callback's error, is its error, and leaves nothing", async () => {
    const image = randomPages(9000);
    await store.store("one", image);
    const one = store.local("one");
    const reason = new Error("enough");
    const end = new AbortController();
    let puts = 0;
    const packing = store.engine.pack(
      {
        ...one,
        keyPrefix: "x-",
        put: async (_packKey, bytes) => {
          puts += 1;
          if (puts === 2) end.abort(reason);
          return delay(puts === 2 ? 10_000 : 0, bytes, { ref: false });
        },
      },
      end.signal,
    );
    await expect(packing).rejects.toBe(reason);
    const broken = new Error("broken");
    let gets = 0;
    const get: TestStore["get"] = (...range) => {
      gets += 1;
      if (gets === 3) throw broken;
      return store.get(...range);
    };
    await expect(store.fetch("one", "back", { get })).rejects.toBe(broken);
    await expect(store.fetch("one", "back", { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const late = new AbortController();
    const fetching = store.fetch("one", "back", {
      signal: late.signal,
      get: async () => {
        late.abort(reason);
        return delay(10_000, new ArrayBuffer(0), { ref: false });
      },
    });
    await expect(fetching).rejects.toBe(reason);
    expect((await readdir(store.dir)).sort()).toEqual(["one", "one.index", "one.table"]);
  });

  it("the engine's end fails what is under way", async () => {
    const other = await TestStore.create();
    const { file, table } = other.local("never");
    const making = other.engine.table({ file, table, growing: { written: new Promise(() => undefined) } });
    const outcome = expect(making).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
    await other.remove();
    await outcome;
    await expect(other.engine.verify({ file, table })).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
  });

  it("an error of the operating system is the cause, with its code", async () => {
    await store.store("one", randomPages(3));
    await expect(store.fetch("one", "no/such/folder")).rejects.toMatchObject({
      code: "INTERNAL",
      cause: { code: "ENOENT" },
    });
  });
});

describe("the table of a growing file", () => {
  it("is the one of the whole file, though it began before there was one", async () => {
    const image = imageOf([0, 0, ...Array.from({ length: 3000 }, (_none, i) => i), 0], 100);
    await writeFile(store.local("source").file, image);
    const { file, table } = store.local("growing");
    const written = delay(20).then(async () => {
      const target = createWriteStream(file);
      for await (const chunk of createReadStream(store.local("source").file, { highWaterMark: 100_000 })) {
        target.write(chunk);
        await delay(1);
      }
      await new Promise<void>((resolve) => target.end(resolve));
    });
    await store.engine.table({ file, table, growing: { written } });
    await store.engine.table(store.local("source"));
    expect(await readFile(table)).toEqual(await readFile(store.local("source").table));
  });

  it("is right even if the file was extended first and filled later", async () => {
    const image = randomPages(1000);
    const { file, table } = store.local("growing");
    await writeFile(file, "");
    await truncate(file, image.length);
    const written = delay(50).then(() => writeFile(file, image, { flag: "r+" }));
    await store.engine.table({ file, table, growing: { written } });
    expect(await store.engine.verify({ file, table })).toBeUndefined();
  });

  it("is not made if the writing failed", async () => {
    const { file, table } = store.local("growing");
    const failed = new Error("disk full");
    await expect(
      store.engine.table({ file, table, growing: { written: delay(20).then(() => Promise.reject(failed)) } }),
    ).rejects.toBe(failed);
    expect(await readdir(store.dir)).toEqual([]);
  });
});
