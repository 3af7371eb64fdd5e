import { randomUUID } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { ObjectSnapshotStore } from "../store/object-snapshots.ts";
import { type Manifest } from "../store/store.ts";
import { type Actor } from "./actor.ts";
import { noEnvironment } from "./environment.ts";
import { type Origin } from "./record.ts";
import { assignment, clusterUid, key, program, snapshotPrefix, TestNode } from "./test-node.ts";

vi.setConfig({ testTimeout: 20_000 });

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(async () => {
  await node.stop();
});

async function granted(epoch = 1, on = node, origin?: Pick<Origin, "stored" | "golden">): Promise<Actor> {
  const from = origin && { origin: { ...origin, floor: 0, chosen: false } };
  await on.actors.assign({ ...assignment({ epoch, session: on.session }), ...from });
  return on.actors.get(key.uid);
}

async function suspend(actor: Actor, memory: number, on = node): Promise<void> {
  on.runtime.only().memory = memory;
  const targetGeneration = (actor.generations.newest()?.generation ?? 0) + 1;
  await actor.suspend({ operationId: randomUUID(), mode: "SYNC", force: false, targetGeneration });
  // until then older ones are still being removed
  await expect.poll(() => actor.record.packsToCollect).toBe(false);
}

const inStore = (...path: string[]): string => join(node.storeDir, clusterUid, "n", ...path);
const manifest = async (generation: string): Promise<Manifest> =>
  JSON.parse(await readFile(inStore(key.uid, generation, "manifest.json"), "utf8")) as Manifest;
const packs = async (uid = key.uid): Promise<string[]> =>
  (await node.storeKeys()).filter((path) => path.includes(`/${uid}/packs/`));

it("unchanged memory is stored once: after a suspend, a restart of the atelet, an eviction and a move", async () => {
  const actor = await granted();
  await actor.resume();
  await suspend(actor, 7);
  await actor.resume();
  await suspend(actor, 7);
  expect(await packs()).toHaveLength(1);
  await node.restart();
  const again = node.actors.get(key.uid);
  await again.resume();
  await suspend(again, 7);
  await again.generations.evict(3);
  await again.resume();
  await suspend(again, 7);
  expect((await manifest("4-1")).pages).toMatchObject({ storedBytes: 0, packs: [{}] });
  const other = await TestNode.create(node.storeDir);
  try {
    const there = await granted(2, other);
    await there.resume();
    expect(other.runtime.only().memory).toBe(7);
    await suspend(there, 7, other);
    expect((await manifest("5-2")).pages?.storedBytes).toBe(0);
    await there.resume();
    await suspend(there, 8, other);
  } finally {
    await other.stop();
  }
  expect(await packs()).toHaveLength(1);
  expect((await manifest("6-2")).pages?.packs[0]?.key).toContain("/packs/6-2-0-");
});

it("a start from a golden snapshot shares its pages, and keeps them when that is deleted", async () => {
  const golden = snapshotPrefix("golden");
  await node.trials.run({ program: program(), environment: noEnvironment, golden });
  const actor = await granted(1, node, { stored: golden, golden: true });
  await actor.resume();
  await suspend(actor, 0);
  expect(await packs()).toEqual([]);
  expect(await packs("golden")).toHaveLength(1);
  await node.tags.delete(golden);
  await expect.poll(() => node.storeKeys()).not.toContain(`${clusterUid}/n/golden/head.json`);
  await actor.generations.evict(1);
  await actor.resume();
  expect(node.runtime.only().memory).toBe(0);
  await suspend(actor, 0);
  expect(await packs("golden")).toHaveLength(1);
  await node.actors.release(key, 1, { deleting: true, clusterUid });
  await expect.poll(async () => (await node.storeKeys()).filter((path) => path.startsWith(clusterUid))).toEqual([]);
});

it("wrong bytes in the store are said, with the next older generation; mended, they are restored", async () => {
  await node.actors.assign(assignment({ epoch: 1, session: node.session }, { program: program({ history: 2 }) }));
  const actor = node.actors.get(key.uid);
  await actor.resume();
  await suspend(actor, 6);
  await actor.resume();
  await suspend(actor, 7);
  const pack = join(node.storeDir, (await packs()).find((path) => path.includes("/2-1-")) ?? "");
  const good = await readFile(pack);
  await writeFile(pack, Buffer.from(good).fill(0, 0, 1));
  // Nothing here may stand in for what is damaged there.
  for (const generation of [1, 2]) await actor.generations.evict(generation);
  const said = /generation 2 cannot be restored: .*--from 1" goes back/;
  await expect(actor.resume()).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED", message: said });
  await writeFile(pack, good);
  await vi.waitFor(() => actor.resume(), { timeout: 10_000 });
  expect(node.runtime.only().memory).toBe(7);
});

it("regression: a generation was named to go back to that shares the damaged object", async () => {
  await node.actors.assign(assignment({ epoch: 1, session: node.session }, { program: program({ history: 3 }) }));
  const actor = node.actors.get(key.uid);
  for (const memory of [6, 7, 7]) {
    await actor.resume();
    await suspend(actor, memory);
  }
  const shared = join(node.storeDir, (await packs()).find((path) => path.includes("/2-1-")) ?? "");
  for (const generation of [1, 2, 3]) await actor.generations.evict(generation);
  await writeFile(shared, Buffer.from(await readFile(shared)).fill(0, 0, 1));
  const said =
    /generation 3 cannot .*; generation 2 cannot be restored without the same object either; .*--from 1" goes/;
  await expect(actor.resume()).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED", message: said });
  await rm(inStore(key.uid, "1-1"), { recursive: true });
  await expect(actor.resume()).rejects.toThrow(/generations 2 and 1 cannot .*; no older generation can be restored/);
});

it("a folder that is deleted under a download fails that start and no later one", async () => {
  const actor = await granted();
  await actor.resume();
  await suspend(actor, 9);
  await actor.generations.evict(1);
  const download = vi.spyOn(ObjectSnapshotStore.prototype, "download");
  download.mockImplementationOnce(async (prefix, name, to) => {
    download.mockRestore();
    await rm(actor.files.generations, { recursive: true });
    return node.context.store("default").download(prefix, name, to);
  });
  await expect(actor.resume()).rejects.toThrow(/ENOENT|no such file/);
  await vi.waitFor(() => actor.resume(), { timeout: 10_000 });
  expect(node.runtime.only().memory).toBe(9);
});

it("what isn't stored yet is checked after a restart of the machine, too", async () => {
  const actor = await granted();
  await actor.resume();
  await suspend(actor, 5);
  await actor.resume();
  node.runtime.only().memory = 6;
  await actor.suspend({ operationId: randomUUID(), mode: "ASYNC", force: false, targetGeneration: 2 });
  await expect.poll(() => actor.generations.local(2)?.seal).toBeDefined();
  await writeFile(join(actor.generations.path(2), "pages.img"), "8");
  await actor.resume();
  expect(node.runtime.only().memory).toBe(5);
  expect(actor.generations.get(2)?.storage.state).toBe("LOST");
});
