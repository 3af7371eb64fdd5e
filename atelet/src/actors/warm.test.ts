import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Actor } from "./actor.ts";
import { assignment, key, program, TestNode } from "./test-node.ts";
import { WARM_BYTES } from "../warm/warm-slots.ts";
import { RUNTIME_OVERHEAD_BYTES } from "./node-context.ts";
import { warmKey } from "./placement.ts";

let node: TestNode;
const { memoryBytes } = program();
const bookedBytes = memoryBytes + RUNTIME_OVERHEAD_BYTES;

beforeEach(async () => {
  node = await TestNode.create();
  node.warmSlots = 1;
  await node.restart();
});
afterEach(() => node.stop());

async function granted(changes: Parameters<typeof program>[0] = {}): Promise<Actor> {
  await node.actors.assign(assignment({ epoch: 1, session: "s1" }, { program: program(changes) }));
  return node.actors.get(key.uid);
}

async function suspend(actor: Actor): Promise<void> {
  const targetGeneration = (actor.generations.newest()?.generation ?? 0) + 1;
  await actor.suspend({ operationId: `s${targetGeneration}`, mode: "ASYNC", force: false, targetGeneration });
}

/** Has run, and sleeps; a sandbox waits for it. */
async function asleepWithWarm(): Promise<Actor> {
  const actor = await granted();
  await actor.resume();
  node.runtime.only().memory = 7;
  await waiting(1);
  await suspend(actor);
  return actor;
}

async function waiting(count: number): Promise<void> {
  await vi.waitFor(() => {
    expect(node.warm.count).toBe(count);
  });
}

describe("a sandbox that waits", () => {
  it("takes the actor that wakes, and goes with it; the next one waits then", async () => {
    const actor = await asleepWithWarm();
    const [id] = node.runtime.created.keys();
    await actor.resume();
    expect(actor.sandboxId).toBe(id);
    expect(node.runtime.only()).toMatchObject({ memory: 7, spec: { id, hostname: key.name } });
    await waiting(1);
    expect(node.ledger.state()).toMatchObject({ bookedBytes, warmBytes: WARM_BYTES });
    await suspend(actor);
    expect(node.ledger.state()).toMatchObject({ bookedBytes: 0, warmBytes: WARM_BYTES });
    await vi.waitFor(async () => {
      expect(await readdir(join(node.dir, "warm"))).toEqual([...node.runtime.created.keys()]);
    });
  });

  it("is not taken by another revision, nor by a cold start", async () => {
    const actor = await asleepWithWarm();
    await node.actors.assign(assignment({ epoch: 2, session: "s1" }, { program: program({ revision: "r2" }) }));
    await waiting(0);
    await actor.resume({ from: { kind: "boot" } });
    expect(node.warmOutcomes).not.toContain("taken");
  });

  it("is not made again and again where it cannot be made", async () => {
    const actor = await granted();
    const create = vi.spyOn(node.runtime, "create").mockRejectedValue(new SubstrateError("INTERNAL", "no image"));
    await actor.resume();
    await vi.waitFor(() => {
      expect(create).toHaveBeenCalledOnce();
    });
    node.warm.fill();
    await suspend(actor);
    expect(create).toHaveBeenCalledOnce();
    expect(node.ledger.state().warmBytes).toBe(0);
  });

  it("if the restore into it fails, a new one is tried, once", async () => {
    const actor = await asleepWithWarm();
    node.runtime.failNext.restore = new SubstrateError("RESTORE_FAILED", "no");
    await actor.resume();
    expect(actor.sandboxId).toBe(key.uid.replaceAll("-", ""));
    expect(node.runtime.only().memory).toBe(7);
  });

  it("goes at once where its memory is wanted, and an actor wakes without it", async () => {
    const actor = await asleepWithWarm();
    const { limitBytes } = node.ledger.state();
    const all = await node.ledger.place(limitBytes, { deadlineMs: 1000 });
    expect(node.ledger.state().warmBytes).toBe(0);
    await vi.waitFor(() => {
      expect(node.runtime.created.size).toBe(0);
    });
    all.free();
    await actor.resume();
    expect(node.runtime.only().memory).toBe(7);
  });

  it("has its bytes in the booking of who takes it: there need not be room for both", async () => {
    const actor = await asleepWithWarm();
    const { limitBytes } = node.ledger.state();
    const rest = await node.ledger.place(limitBytes - bookedBytes, { deadlineMs: 1000 });
    await actor.resume();
    expect(node.warmOutcomes).toContain("taken");
    expect(node.ledger.state()).toMatchObject({ bookedBytes: limitBytes, warmBytes: 0 });
    rest.free();
  });

  it("goes when the start that took it does not come so far", async () => {
    const actor = await asleepWithWarm();
    vi.spyOn(node.context.images, "local").mockRejectedValueOnce(new SubstrateError("IMAGE_UNAVAILABLE", "no"));
    await expect(actor.resume()).rejects.toThrow("no");
    expect(node.ledger.state().bookedBytes).toBe(0);
    await vi.waitFor(() => {
      expect(node.warmOutcomes).toContain("unfit");
    });
  });
});

describe("a wake from the store", () => {
  /** Its memory comes only when a sandbox was created for it. */
  async function stored(): Promise<Actor> {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 7;
    await waiting(1);
    await actor.suspend({ operationId: "s1", mode: "SYNC", force: false, targetGeneration: 1 });
    await actor.generations.evict(1);
    vi.spyOn(node.warm, "take").mockReturnValue(undefined);
    node.warm.forget(warmKey(program()));
    await waiting(0);
    const store = node.context.store("default");
    const download = store.download.bind(store);
    vi.spyOn(store, "download").mockImplementation(async (...what) => {
      await vi.waitFor(() => {
        expect(node.runtime.created.size).toBe(1);
      });
      return download(...what);
    });
    return actor;
  }

  it("has its sandbox created while its memory is fetched", async () => {
    const actor = await stored();
    await actor.resume();
    expect(node.runtime.only().memory).toBe(7);
    expect(actor.sandboxId).not.toBe(key.uid.replaceAll("-", ""));
    expect(node.ledger.state().bookedBytes).toBe(bookedBytes);
  });

  it("leaves nothing of that if its memory cannot be had", async () => {
    const actor = await stored();
    for (const name of await node.storeKeys()) if (name.includes("/packs/")) await rm(join(node.storeDir, name));
    await expect(actor.resume()).rejects.toMatchObject({ code: "SNAPSHOT_DAMAGED" });
    await vi.waitFor(async () => {
      expect(await readdir(join(node.dir, "warm"))).toEqual([]);
    });
    expect(node.runtime.created.size).toBe(0);
    expect(node.ledger.state().bookedBytes).toBe(0);
  });
});

describe("kill -9 of the atelet", () => {
  it("what waits is removed, what an actor runs in is adopted", async () => {
    const actor = await asleepWithWarm();
    await actor.resume();
    const { sandboxId } = actor;
    await waiting(1);
    await node.restart();
    expect(node.actors.get(key.uid).state).toBe("RUNNING");
    expect([...node.runtime.sandboxes.keys()]).toEqual([sandboxId]);
    expect(node.runtime.created.size).toBe(0);
    expect(await readdir(join(node.dir, "warm"))).toEqual([sandboxId]);
    await suspend(node.actors.get(key.uid));
    await vi.waitFor(async () => {
      expect(await readdir(join(node.dir, "warm"))).toEqual([]);
    });
  });
});

it("memory that loads keeps nobody's wake waiting", async () => {
  const uids = [1, 2, 3, 4].map((index) => key.uid.replace(/.$/, String(index)));
  for (const uid of uids) {
    await node.actors.assign(assignment({ epoch: 1, session: "s1" }, { actor: { ...key, uid, name: uid } }));
    const actor = node.actors.get(uid);
    await actor.resume();
    await suspend(actor);
  }
  const load = Promise.withResolvers<undefined>();
  node.runtime.hold.load = load.promise.then(() => undefined);
  for (const uid of uids) await node.actors.get(uid).resume();
  expect(node.runtime.sandboxes.size).toBe(uids.length);
  load.resolve(undefined);
});

it("none is made where there may be none", async () => {
  node.warmSlots = 0;
  await node.restart();
  const actor = await granted();
  await actor.resume();
  await suspend(actor);
  await actor.resume();
  expect(node.warmOutcomes).toEqual([]);
  expect(actor.sandboxId).toBe(key.uid.replaceAll("-", ""));
});
