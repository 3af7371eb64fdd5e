import { randomUUID } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { type Manifest } from "../store/store.ts";
import { type Actor } from "./actor.ts";
import { assignment, clusterUid, key, program, TestNode } from "./test-node.ts";

vi.setConfig({ testTimeout: 20_000 });

let node: TestNode;
let other: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
  other = await TestNode.create(node.storeDir);
});
afterEach(async () => {
  await other.stop();
  await node.stop();
});

async function granted(epoch: number, on: TestNode, history: number): Promise<Actor> {
  await on.actors.assign(assignment({ epoch, session: on.session }, { program: program({ history }) }));
  return on.actors.get(key.uid);
}

async function suspend(actor: Actor, memory: number, on: TestNode): Promise<void> {
  on.runtime.only().memory = memory;
  const targetGeneration = (actor.generations.newest()?.generation ?? 0) + 1;
  await actor.suspend({ operationId: randomUUID(), mode: "SYNC", force: false, targetGeneration });
  await expect.poll(() => actor.record.packsToCollect).toBe(false);
}

const numbers = (actor: Actor): number[] => actor.generations.all().map(({ generation }) => generation);
const stored = async (): Promise<string[]> =>
  (await node.storeKeys()).flatMap((path) => /\/(\d+-\d+)\/manifest\.json$/.exec(path)?.[1] ?? []).sort();

/** Generations 1, 2, 3 of memory 10, 20, 30, two of which are kept; then on another node, which has nothing of it. */
async function moved(): Promise<Actor> {
  const here = await granted(1, node, 2);
  for (const memory of [10, 20, 30]) {
    await here.resume();
    await suspend(here, memory, node);
  }
  return granted(2, other, 2);
}

it("a person can go back to a generation that was stored before a move", async () => {
  const there = await moved();
  await there.resume({ from: { kind: "generation", generation: 2 } });
  expect(other.runtime.only().memory).toBe(20);
  await suspend(there, 21, other);
  expect(await stored()).toEqual(["2-1", "4-2"]);
});

it("what was stored before a move is removed as it gets older", async () => {
  const there = await moved();
  await there.resume();
  expect(other.runtime.only().memory).toBe(30);
  expect(numbers(there)).toEqual([3, 2]);
  await suspend(there, 40, other);
  expect(numbers(there)).toEqual([4, 3]);
  expect(await stored()).toEqual(["3-1", "4-2"]);
});

it("no generation from before a move is restored by itself", async () => {
  const there = await moved();
  await there.resume();
  expect(there.generations.usable().map(({ generation }) => generation)).toEqual([3]);
});

it("an older manifest that is damaged holds up no wake", async () => {
  const there = await moved();
  const dir = join(node.storeDir, clusterUid, "n", key.uid, "2-1");
  await rm(dir, { recursive: true });
  await mkdir(dir);
  await writeFile(join(dir, "manifest.json"), "{");
  await there.resume();
  expect(other.runtime.only().memory).toBe(30);
});

it("what a replaced upload left in the store goes with the next one", async () => {
  const there = await moved();
  const dir = join(node.storeDir, clusterUid, "n", key.uid);
  const left = JSON.parse(await readFile(join(dir, "3-1", "manifest.json"), "utf8")) as Manifest;
  await mkdir(join(dir, "4-1"));
  await writeFile(join(dir, "4-1", "manifest.json"), JSON.stringify({ ...left, generation: 4 }));
  await there.resume();
  expect(other.runtime.only().memory).toBe(30);
  await suspend(there, 40, other);
  expect(await stored()).toEqual(["3-1", "4-2"]);
});
