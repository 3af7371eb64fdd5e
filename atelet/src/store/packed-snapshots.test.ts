import { rm } from "node:fs/promises";
import { beforeAll, beforeEach, expect, it, vi } from "vitest";
import { MemoryStore } from "./memory-store.ts";
import { type ObjectSnapshotStore } from "./object-snapshots.ts";
import { changed, facts, litter, missingOf, PackedWorld, prefixOf, randomPages } from "./packed-world.ts";

vi.setConfig({ testTimeout: 30_000 });

let world: PackedWorld;
let objects: MemoryStore;
let store: ObjectSnapshotStore;
const prefix = prefixOf("a");

beforeAll(async () => {
  world = await PackedWorld.create();
  return async () => {
    await world.engine.close();
    await rm(world.dir, { recursive: true });
  };
});
beforeEach(() => {
  objects = new MemoryStore();
  store = world.over(objects);
});

/** The same objects, with a look at every call. */
function seen(before: (call: string, key: string) => void): ObjectSnapshotStore {
  return world.over(new MemoryStore(before, objects.objects));
}

it("a generation stores what changed since the one before, and comes back whole", async () => {
  const first = randomPages(600);
  const one = await world.commit(store, prefix, [1, 1], first);
  expect(one.storedBytes).toBeGreaterThan(first.length);
  const second = changed(changed(first, 7), 599);
  const two = await world.commit(store, prefix, [2, 1], second, [one]);
  expect(two.storedBytes).toBeLessThan(first.length / 10);
  await store.collect(prefix, 1, 1);
  await store.collectPacks(prefix, 1);
  const { content, manifest } = await world.fetch(store, prefix, two.key);
  expect(content.equals(second)).toBe(true);
  expect(manifest).toMatchObject({ format: 3, sizeBytes: expect.any(Number) as number });
  expect(manifest.files.map(({ name }) => name)).toEqual(["checkpoint.img"]);
  expect(manifest.pages?.packs).toHaveLength(2);
});

it("shares with the generation that the head names and no other, and with nothing that was changed here", async () => {
  const pages = randomPages(40);
  const one = await world.commit(store, prefix, [1, 1], pages);
  const two = await world.commit(store, prefix, [2, 1], changed(pages, 1), [one]);
  // what the head doesn't name may be collected by others meanwhile
  const three = await world.commit(store, prefix, [3, 1], pages, [one]);
  expect(three.storedBytes).toBeGreaterThan(pages.length);
  const foreignIndex = { ...three, index: two.index };
  const four = await world.commit(store, prefix, [4, 1], pages, [foreignIndex]);
  expect(four.storedBytes).toBeGreaterThan(pages.length);
  const five = await world.commit(store, prefix, [5, 1], changed(pages, 2), [four, two]);
  expect(five.storedBytes).toBeLessThan(pages.length);
  await store.rewind(prefix, 1, three.key);
  const six = await world.commit(store, prefix, [6, 1], changed(pages, 3), [five, three]);
  expect(six.storedBytes).toBeLessThan(pages.length);
  expect(missingOf(objects.objects, prefix)).toEqual([]);
});

it("regression: a generation named a pack that somebody had removed, and counted as stored", async () => {
  const pages = randomPages(40);
  const one = await world.commit(store, prefix, [1, 1], pages);
  const [pack = ""] = [...objects.objects.keys()].filter((key) => key.includes("/packs/"));
  objects.objects.delete(pack);
  const content = changed(pages, 1);
  const two = await world.commit(store, prefix, [2, 1], content, [one]);
  expect(missingOf(objects.objects, prefix)).toEqual([]);
  expect((await world.fetch(store, prefix, two.key)).content.equals(content)).toBe(true);
});

it("a generation of format 1 is restored, and the next one is stored in packs", async () => {
  const pages = randomPages(20);
  const { dir } = await world.image(pages);
  await store.commit(prefix, facts(prefix, 1, 1), { dirs: [dir] });
  const old = await world.fetch(store, prefix, "1-1/manifest.json");
  expect([old.manifest.format, old.content.equals(pages)]).toEqual([1, true]);
  const next = await world.commit(store, prefix, [2, 1], changed(pages, 3), [old.known]);
  expect((await world.fetch(store, prefix, next.key)).manifest.format).toBe(3);
});

it("a download fetches only what no image here has", async () => {
  const first = randomPages(2_000);
  const one = await world.commit(store, prefix, [1, 1], first);
  const second = changed(first, 1_000);
  const two = await world.commit(store, prefix, [2, 1], second, [one]);
  const ranges: string[] = [];
  const watched = seen((call, key) => {
    if (call === "getRange") ranges.push(key);
  });
  expect((await world.fetch(watched, prefix, two.key, [one])).content.equals(second)).toBe(true);
  expect(ranges).toHaveLength(1);
});

it("bytes that were changed on their way are fetched again; those that are wrong in the store are said", async () => {
  const pages = randomPages(600);
  const one = await world.commit(store, prefix, [1, 1], pages);
  const [pack] = [...objects.objects].filter(([key]) => key.includes("/packs/"));
  if (!pack) throw new Error("no pack");
  const [key, good] = pack;
  const bad = Buffer.from(good);
  bad[5_000] = (bad[5_000] ?? 0) ^ 1;
  let reads = 0;
  const once = seen((call) => {
    if (call === "getRange") objects.objects.set(key, (reads += 1) === 1 ? bad : good);
  });
  expect((await world.fetch(once, prefix, one.key)).content.equals(pages)).toBe(true);
  objects.objects.set(key, bad);
  const damaged = { code: "SNAPSHOT_DAMAGED" };
  await expect(world.fetch(store, prefix, one.key)).rejects.toMatchObject(damaged);
  objects.objects.set(key, good.subarray(0, 9_000));
  await expect(world.fetch(store, prefix, one.key)).rejects.toMatchObject(damaged);
  objects.objects.set(key, good);
  objects.objects.set("c/n/a/1-1/pages.index", Buffer.from("x"));
  await expect(world.fetch(store, prefix, one.key)).rejects.toMatchObject(damaged);
});

it("can be cut off at every call of an upload and then finished, and leaves nothing of the tries", async () => {
  const first = randomPages(30);
  const one = await world.commit(store, prefix, [1, 1], first);
  let base = one;
  for (let calls = 0; ; calls += 1) {
    const generation = calls + 2;
    let left = calls;
    const cut = seen(() => {
      left -= 1;
      if (left < 0) throw new Error("died");
    });
    const content = changed(first, calls % 30);
    const outcome = await world.commit(cut, prefix, [generation, 1], content, [base]).catch((error: unknown) => error);
    expect(missingOf(objects.objects, prefix)).toEqual([]);
    base = await world.commit(store, prefix, [generation, 1], content, [base]);
    await store.collect(prefix, generation - 1, 1);
    await store.collectPacks(prefix, 1);
    expect(litter(objects.objects)).toEqual([]);
    expect((await world.fetch(store, prefix, base.key)).content.equals(content)).toBe(true);
    if (!(outcome instanceof Error)) break;
  }
});

it("a store that fails every tenth call only makes it take more tries", async () => {
  let calls = 0;
  const shaky = seen((_call, key) => {
    calls += 1;
    if (calls % 10 === 0) throw new Error(`no answer for ${key}`);
  });
  const content = randomPages(3_000);
  for (let tries = 1; ; tries += 1) {
    const outcome = await world.commit(shaky, prefix, [1, 1], content).catch((error: unknown) => error);
    if (!(outcome instanceof Error)) break;
    expect(tries).toBeLessThan(20);
  }
  expect((await world.fetch(store, prefix, "1-1/manifest.json")).content.equals(content)).toBe(true);
});

it("the lower of two epochs is refused, and what it stored goes with the higher one's next collection", async () => {
  const pages = randomPages(30);
  const one = await world.commit(store, prefix, [1, 1], pages);
  await store.claim(prefix, 2);
  await expect(world.commit(store, prefix, [2, 1], changed(pages, 1), [one])).rejects.toMatchObject({
    code: "SUPERSEDED",
  });
  await expect(store.collectPacks(prefix, 1)).rejects.toMatchObject({ code: "SUPERSEDED" });
  const two = await world.commit(store, prefix, [2, 2], changed(pages, 2), [one]);
  await store.collectPacks(prefix, 2);
  expect(missingOf(objects.objects, prefix)).toEqual([]);
  expect(litter(objects.objects)).toEqual([]);
  await world.fetch(store, prefix, two.key);
});

it("a tag of a fork has all packs of its own; it outlives the fork and what that began from", async () => {
  const golden = prefixOf("golden");
  const pages = randomPages(40);
  const base = await world.commit(store, golden, [1, 1], pages);
  const content = changed(pages, 5);
  const fork = await world.commit(store, prefix, [1, 1], content, [base]);
  expect(fork.storedBytes).toBeLessThan(pages.length / 4);
  const tag = prefixOf("tag");
  const owner = { uid: "tag", namespace: "default", name: "tag" };
  await store.copy({ prefix, key: fork.key }, tag, owner);
  // a fork of the fork's tag shares the tag's packs
  const grandchild = prefixOf("b");
  const known = await world.fetch(store, tag, "1-1/manifest.json");
  const third = await world.commit(store, grandchild, [1, 1], changed(content, 6), [known.known]);
  expect(third.storedBytes).toBeLessThan(pages.length / 4);
  expect(await store.deletePrefix(golden)).toBe("waiting");
  expect(missingOf(objects.objects, prefix)).toEqual([]);
  expect(await store.deletePrefix(prefix)).toBe("removed");
  expect(await store.deletePrefix(golden)).toBe("removed");
  expect((await world.fetch(store, tag, "1-1/manifest.json")).content.equals(content)).toBe(true);
  expect(await store.deletePrefix(tag)).toBe("waiting");
  const { content: last } = await world.fetch(store, grandchild, third.key);
  expect(last.equals(changed(content, 6))).toBe(false);
  expect(await store.deletePrefix(grandchild)).toBe("removed");
  expect(await store.deletePrefix(tag)).toBe("removed");
  expect([...objects.objects.keys()]).toEqual([]);
});

it("nothing is shared with a Snapshot that is being deleted, or is gone", async () => {
  const golden = prefixOf("golden");
  const pages = randomPages(40);
  const base = await world.commit(store, golden, [1, 1], pages);
  objects.objects.set("c/n/golden/tombstone", Buffer.from("{}"));
  expect((await world.commit(store, prefix, [1, 1], pages, [base])).storedBytes).toBeGreaterThan(pages.length);
  expect(await world.over(objects, 0).deletePrefix(golden)).toBe("removed");
  const other = await world.commit(store, prefixOf("b"), [1, 1], pages, [base]);
  expect(other.storedBytes).toBeGreaterThan(pages.length);
  expect(litter(objects.objects)).toEqual([]);
});

it("an upload whose mark was taken for an old one is refused before the head names it", async () => {
  const golden = prefixOf("golden");
  const pages = randomPages(40);
  const base = await world.commit(store, golden, [1, 1], pages);
  const slow = seen((call, key) => {
    if (call === "put" && key === "c/n/a/1-1/manifest.json") objects.objects.delete("c/n/golden/users/a");
  });
  const refused = world.commit(slow, prefix, [1, 1], pages, [base]);
  await expect(refused).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  expect(objects.objects.has("c/n/a/1-1/manifest.json")).toBe(false);
  await world.commit(store, prefix, [1, 1], pages, [base]);
  expect(missingOf(objects.objects, prefix)).toEqual([]);
});
