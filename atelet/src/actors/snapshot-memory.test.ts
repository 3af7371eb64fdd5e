import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { WriteBack } from "../writeback/writeback.ts";
import { type Actor } from "./actor.ts";
import { noEnvironment } from "./environment.ts";
import { assignment, clusterUid, key, program, snapshotPrefix, TestNode } from "./test-node.ts";

const MIB = 2 ** 20;
/** What an actor of `program()` is booked with: its limit, and the runtime's own. */
const BOOKED_BYTES = (64 + 32) * MIB;

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(async () => {
  vi.restoreAllMocks();
  await node.stop();
});

async function running(): Promise<Actor> {
  await node.actors.assign(assignment({ epoch: 1, session: node.session }));
  const actor = node.actors.get(key.uid);
  await actor.resume();
  return actor;
}

async function suspend(actor: Actor, mode: "ASYNC" | "SYNC" = "ASYNC"): Promise<number> {
  const targetGeneration = (actor.generations.newest()?.generation ?? 0) + 1;
  await actor.suspend({ operationId: randomUUID(), mode, force: false, targetGeneration });
  return targetGeneration;
}

/** Each file that is followed, with whether it is there by then. */
function watchFollowed(): [path: string, there: boolean][] {
  const { writeBack } = node.context;
  const follow = writeBack.follow.bind(writeBack);
  const followed: [string, boolean][] = [];
  vi.spyOn(writeBack, "follow").mockImplementation((paths, loan) => {
    followed.push(...paths.map((path): [string, boolean] => [path, existsSync(path)]));
    return follow(paths, loan);
  });
  return followed;
}

describe("what is promised", () => {
  it("R2: an actor is booked with its limit and what the runtime takes, by the next atelet, too", async () => {
    await running();
    expect(node.ledger.state().bookedBytes).toBe(BOOKED_BYTES);
    await node.restart();
    expect(node.ledger.state().bookedBytes).toBe(BOOKED_BYTES);
  });

  it("R1: an image is lent for by what the actor has in memory, and 32 MiB", async () => {
    const actor = await running();
    const memory = await node.context.cgroups.actor(actor.sandboxId);
    vi.spyOn(node.context.cgroups, "actor").mockResolvedValue({ ...memory, shmemBytes: 100 * MIB });
    const borrow = vi.spyOn(node.ledger, "borrow");
    await suspend(actor);
    expect(borrow.mock.calls.map(([bytes]) => bytes)).toEqual([132 * MIB]);
  });

  it("R4: clean page cache is lent from, dirty pages are not", async () => {
    const actor = await running();
    const checkpoint = vi.spyOn(node.runtime, "checkpoint");
    const pod = await node.context.cgroups.pod();
    const cached = vi.spyOn(node.context.cgroups, "pod");
    cached.mockResolvedValue({ ...pod, usageBytes: pod.limitBytes, cleanCacheBytes: pod.limitBytes / 2 });
    await suspend(actor);
    await actor.resume();
    cached.mockResolvedValue({ ...pod, usageBytes: pod.limitBytes, dirtyBytes: pod.limitBytes / 2 });
    await suspend(actor);
    const how = checkpoint.mock.calls.map((call): unknown => call.at(2));
    expect(how).toEqual([{ direct: false }, { direct: true }]);
  });
});

describe("what is fetched", () => {
  it("R7, R9: is written at the disk's speed without a loan; with one it is followed by its final name", async () => {
    const actor = await running();
    const unpack = vi.spyOn(node.context.pages, "unpack");
    const followed = watchFollowed();
    const fetched: string[] = [];
    for (const lent of [true, false]) {
      const generation = await suspend(actor, "SYNC");
      fetched.push(join(actor.generations.path(generation), "pages.img"));
      await actor.generations.evict(generation);
      followed.length = 0;
      const { unbookedBytes } = node.ledger.state();
      const taken = lent ? undefined : node.ledger.take(unbookedBytes - BOOKED_BYTES, unbookedBytes);
      await actor.resume();
      taken?.return();
      expect(followed).toEqual(lent ? [[fetched[0], true]] : []);
    }
    expect(unpack.mock.calls.map(([{ lent }]) => lent)).toEqual([true, false]);
  });

  it("R24: has its space claimed before", async () => {
    const actor = await running();
    await actor.generations.evict(await suspend(actor, "SYNC"));
    node.disk.full = new SubstrateError("NO_ROOM", "node n: the disk is full");
    await expect(actor.resume()).rejects.toMatchObject({ code: "NO_ROOM" });
    expect(await readdir(actor.files.generations)).toEqual([]);
    node.disk.full = undefined;
    await actor.resume();
    expect(node.disk.claimed.at(-1)).toBe("generation 1 of actor default/a");
  });
});

it("R24: what is lost for good if it is not saved now is saved, however full the disk is", async () => {
  const actor = await running();
  node.disk.full = new SubstrateError("NO_ROOM", "node n: the disk is full");
  node.stopping.abort();
  await node.actors.saveAll(new Promise(() => undefined));
  expect(actor.generations.newest()?.storage.state).toBe("COMPLETED");
});

describe("a golden snapshot", () => {
  const golden = snapshotPrefix("golden");
  const made = () => node.trials.run({ environment: noEnvironment, program: program(), golden });

  it("R16, R17, R24, R9: takes its slot, its space, its loan; is written after the move; is followed by its final name", async () => {
    const order: string[] = [];
    const borrow = node.ledger.borrow.bind(node.ledger);
    vi.spyOn(node.ledger, "borrow").mockImplementation((...args) => {
      order.push(`borrow in ${node.snapshotSlots.activeCount} slot`);
      return borrow(...args);
    });
    const checkpoint = node.runtime.checkpoint.bind(node.runtime);
    vi.spyOn(node.runtime, "checkpoint").mockImplementation((...args) => {
      order.push(...node.moves.map((move) => move.replace(/ .*/, "")), "checkpoint");
      return checkpoint(...args);
    });
    const followed = watchFollowed();
    await made();
    expect(node.disk.claimed).toEqual(["Snapshot default/golden"]);
    expect(order).toEqual(["borrow in 1 slot", "out", "checkpoint"]);
    expect(followed).toEqual([[join(node.dir, "origins", "golden", "image", "pages.img"), true]]);
  });

  it("R6: is written around the page cache without a loan", async () => {
    const checkpoint = vi.spyOn(node.runtime, "checkpoint");
    vi.spyOn(node.ledger, "borrow").mockResolvedValue(undefined);
    await made();
    expect(checkpoint.mock.calls.map((call): unknown => call.at(2))).toEqual([{ direct: true }]);
  });

  it("R7: is written at the disk's speed where it is fetched: nothing is lent for it", async () => {
    await made();
    await node.origins.forget("golden");
    const unpack = vi.spyOn(node.context.pages, "unpack");
    await (await node.origins.hold(golden)).release();
    expect(unpack.mock.calls.map(([{ lent }]) => lent)).toEqual([false]);
  });

  it("R2: counts for the next atelet until it is on the disk", async () => {
    await made();
    let dirtyPages = 1000;
    const inspect = () => Promise.resolve({ cachedPages: 1000, dirtyPages, writebackPages: 0 });
    const pageCache = { ...node.context.pageCache, inspect };
    const nothing = () => undefined;
    const writeBack = new WriteBack({
      cache: pageCache,
      tight: () => Promise.resolve(false),
      log: node.context.log,
      flushed: nothing,
      evicted: nothing,
      gaveUp: nothing,
      signal: new AbortController().signal,
    });
    await node.restart({ pageCache, writeBack });
    expect(node.ledger.state().lentBytes).toBe(1000 * 4096);
    dirtyPages = 0;
    await expect.poll(() => node.ledger.state().lentBytes, { timeout: 10_000 }).toBe(0);
  });

  it("R18, R20: is read where it is, and stays in memory when one of its actors has read it: it is for others, too", async () => {
    await made();
    const restore = vi.spyOn(node.runtime, "restore");
    const dropped = vi.spyOn(node.context.writeBack, "dropIfTight");
    await node.actors.assign({
      ...assignment({ epoch: 1, session: node.session }, { clusterUid }),
      origin: { stored: golden, golden: true, floor: 0, chosen: false },
    });
    const actor = node.actors.get(key.uid);
    await actor.resume();
    expect(actor.record.sandbox).toMatchObject({ cold: false, fromOrigin: "golden" });
    expect(restore.mock.calls[0]?.[1].imageDir).toBe(join(node.dir, "origins", "golden", "image"));
    // a suspend waits until all is read
    await suspend(actor);
    expect(dropped).not.toHaveBeenCalled();
    await actor.resume();
    await suspend(actor);
    expect(dropped.mock.calls).toEqual([[join(actor.generations.path(1), "pages.img")]]);
  });
});

it("R19: a load under way keeps its files, also when the atelet is another one by then", async () => {
  const actor = await running();
  await suspend(actor, "SYNC");
  const load = Promise.withResolvers<undefined>();
  node.runtime.hold.load = load.promise.then(() => undefined);
  await actor.resume();
  await node.restart();
  const again = node.actors.get(key.uid);
  await again.generations.evict(1);
  expect(await readdir(again.generations.path(1))).toEqual(["pages.img"]);
  load.resolve(undefined);
  await expect.poll(() => readdir(again.files.generations), { timeout: 10_000 }).toEqual([]);
});
