import { randomUUID } from "node:crypto";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Actor } from "./actor.ts";
import { type Fidelity } from "./record.ts";
import { assignment, clusterUid, key, program, TestNode } from "./test-node.ts";

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(() => node.stop());

const volume = { name: "v", mountPath: "/v", sizeLimitBytes: 0 };

async function granted(epoch = 1, changes: Parameters<typeof program>[0] = {}): Promise<Actor> {
  await node.actors.assign(
    assignment({ epoch, session: node.session }, { program: program({ history: 9, ...changes }) }),
  );
  return node.actors.get(key.uid);
}
async function suspend(actor: Actor, fidelity: Fidelity = "Memory"): Promise<void> {
  const targetGeneration = (actor.generations.newest()?.generation ?? 0) + 1;
  await actor.suspend({ operationId: randomUUID(), mode: "SYNC", force: false, targetGeneration, fidelity });
}
async function asleep(changes: Parameters<typeof program>[0] = {}): Promise<Actor> {
  const actor = await granted(1, changes);
  await actor.resume();
  await suspend(actor);
  return actor;
}
/** Of the last restore. */
const kept = (): boolean | undefined => node.runtime.keptConnections.at(-1);
const parked = (): number => node.network.parkedCount;

describe("open connections go on", () => {
  it("when the newest image is restored for the first time where it fell asleep, each time", async () => {
    const actor = await asleep();
    for (const generation of [1, 2]) {
      expect(node.network.parked.takeFor({ actor: key.uid, generation, epoch: 1 })).toBeDefined();
      node.network.parked.add({ actor: key.uid, generation, epoch: 1, nodeAddress: "100.64.0.9" });
      await actor.resume();
      expect(kept()).toBe(true);
      expect(parked()).toBe(0);
      await suspend(actor);
    }
    expect(node.network.givenUp).toEqual([]);
  });

  it("after a restart of the atelet meanwhile, and under a grant that follows", async () => {
    await asleep();
    await node.restart();
    await (await granted(2)).resume();
    expect(kept()).toBe(true);
  });

  it("after a tag for which an actor with volumes was put to sleep", async () => {
    const actor = await granted(1, { volumeMounts: [volume] });
    await actor.resume();
    await actor.tag(
      { prefix: { clusterUid, namespaceUid: "n", actorUid: "tag" }, name: "default/tag", store: "default" },
      "t1",
    );
    expect(kept()).toBe(true);
  });
});

describe("open connections are reset", () => {
  it("at a second restore of the image, after a crash", async () => {
    const actor = await asleep();
    await actor.resume();
    node.runtime.end({ code: 3 });
    await actor.checkAlive();
    await actor.resume();
    expect(node.runtime.keptConnections).toEqual([true, false]);
  });

  it("at the next try, when the first restore failed", async () => {
    const actor = await asleep();
    node.runtime.failNext.restore = new SubstrateError("RESTORE_FAILED", "no");
    await expect(actor.resume()).rejects.toThrow("no");
    expect(parked()).toBe(0);
    await actor.resume();
    expect(node.runtime.keptConnections).toEqual([false]);
  });

  it("when a person goes back, though it be to the newest", async () => {
    const actor = await asleep();
    await actor.resume({ from: { kind: "generation", generation: 1 } });
    expect(kept()).toBe(false);
    expect(node.network.givenUp).toHaveLength(1);
  });

  it("at a boot", async () => {
    const actor = await asleep();
    await actor.resume({ from: { kind: "boot" } });
    expect(node.runtime.keptConnections).toEqual([]);
    expect(node.network.givenUp).toHaveLength(1);
  });

  it("when the newest image turns out damaged and an older one is taken", async () => {
    const actor = await asleep();
    await actor.resume();
    await suspend(actor);
    await actor.generations.evict(2);
    const newest = actor.generations.newest();
    if (newest !== undefined) actor.generations.lose(newest, "gone");
    await actor.resume();
    expect(actor.record.sandbox?.fromGeneration).toBe(1);
    expect(kept()).toBe(false);
    expect(parked()).toBe(0);
  });

  it("when it ran elsewhere since, though that saved nothing", async () => {
    const actor = await asleep();
    await node.context.store("default").claim({ clusterUid, namespaceUid: "n", actorUid: key.uid }, 2);
    await granted(3);
    await actor.resume();
    expect(actor.record.sandbox?.fromGeneration).toBe(1);
    expect(kept()).toBe(false);
    expect(node.network.givenUp).toHaveLength(1);
  });

  it("when it sleeps on less than its memory", async () => {
    for (const fidelity of ["Rootfs", "Data"] as const) {
      const actor = await granted(1, { volumeMounts: [volume] });
      await actor.resume();
      await suspend(actor, fidelity);
      expect(parked()).toBe(0);
    }
  });

  it("when the atelet ends before the sleep is written down", async () => {
    const actor = await granted();
    await actor.resume();
    const { sandbox } = actor.record;
    await suspend(actor);
    actor.record.sandbox = sandbox;
    await actor.files.save(actor.record, { durable: false });
    await node.restart();
    expect(parked()).toBe(0);
    await node.actors.get(key.uid).resume();
    expect(kept()).toBe(false);
  });

  it("when it leaves, or is deleted: nothing is kept for it", async () => {
    for (const deleting of [false, true]) {
      const epoch = deleting ? 3 : 1;
      const actor = await granted(epoch);
      await actor.resume();
      await suspend(actor);
      expect(parked()).toBe(1);
      await node.actors.release(key, epoch, { deleting, clusterUid });
      expect(parked()).toBe(0);
    }
  });
});

it("an actor sleeps though its connections cannot be kept", async () => {
  node.network.park = () => Promise.reject(new SubstrateError("INTERNAL", "the kernel refused"));
  const actor = await asleep();
  expect(actor.state).toBe("SUSPENDED");
  expect(node.network.used.size).toBe(0);
  await actor.resume();
  expect(kept()).toBe(false);
});
