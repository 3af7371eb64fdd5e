import { randomUUID } from "node:crypto";
import { readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { type Actor } from "./actor.ts";
import { noEnvironment } from "./environment.ts";
import { type Origin } from "./record.ts";
import { clusterUid, key, program, snapshotPrefix, TestNode } from "./test-node.ts";

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(async () => {
  await node.stop();
});

const tag = snapshotPrefix("tag");

/** A snapshot of a program whose memory is 5. */
async function stored(uid: string, changes: Parameters<typeof program>[0] = {}): Promise<void> {
  const checkpoint = node.runtime.checkpoint.bind(node.runtime);
  node.runtime.checkpoint = async (id, dir) => {
    const sandbox = node.runtime.sandboxes.get(id);
    if (sandbox !== undefined) sandbox.memory = 5;
    return checkpoint(id, dir);
  };
  await node.trials.run({ program: program(changes), environment: noEnvironment, golden: snapshotPrefix(uid) });
  node.runtime.checkpoint = checkpoint;
}

async function granted(
  uid: string,
  origin: Pick<Origin, "stored" | "golden"> | undefined,
  changes = {},
): Promise<Actor> {
  await node.actors.assign({
    actor: { ...key, uid },
    grant: { epoch: 1, session: node.session },
    program: program(changes),
    held: false,
    clusterUid,
    upgradePending: false,
    origin: origin && { ...origin, floor: 0, chosen: false },
  });
  return node.actors.get(uid);
}

const suspend = (actor: Actor) =>
  actor.suspend({
    operationId: randomUUID(),
    mode: "ASYNC",
    force: false,
    targetGeneration: (actor.generations.newest()?.generation ?? 0) + 1,
  });

it("ten actors begin from one tag at once; each counts its own generations, and goes on from them", async () => {
  await stored("tag");
  await node.origins.forget("tag");
  const uids = Array.from({ length: 10 }, () => randomUUID());
  const actors = await Promise.all(uids.map((uid) => granted(uid, { stored: tag, golden: false })));
  await Promise.all(actors.map((actor) => actor.resume()));
  expect([...node.runtime.sandboxes.values()].map(({ memory }) => memory)).toEqual(Array(10).fill(5));
  const [first] = actors;
  if (first === undefined) return;
  const sandbox = node.runtime.sandboxes.get(first.sandboxId);
  if (sandbox !== undefined) sandbox.memory = 6;
  await suspend(first);
  expect(first.generations.newest()?.generation).toBe(1);
  await first.resume();
  expect(node.runtime.sandboxes.get(first.sandboxId)?.memory).toBe(6);
});

it("a crash before anything was saved begins from it again, after a restart too", async () => {
  await stored("tag");
  const actor = await granted(key.uid, { stored: tag, golden: false });
  await actor.resume();
  node.runtime.only().memory = 9;
  node.runtime.sandboxes.clear();
  await node.restart();
  await node.actors.get(key.uid).resume();
  expect(node.runtime.only().memory).toBe(5);
});

it.each(["the store is away", "the restore fails", "its revision is another"])(
  "a golden snapshot gives way to a cold start: %s",
  async (why) => {
    await stored("golden");
    await node.origins.forget("golden");
    if (why === "the store is away") await rename(node.storeDir, `${node.storeDir}.away`);
    if (why === "the restore fails") node.runtime.failNext.restore = new SubstrateError("RESTORE_FAILED", "no");
    const changes = why === "its revision is another" ? { revision: "r2" } : {};
    const actor = await granted(key.uid, { stored: snapshotPrefix("golden"), golden: true }, changes);
    actor.record.claim.state = "none";
    await actor.resume();
    expect(node.runtime.only().memory).toBe(0);
    expect(actor.record.sandbox?.cold).toBe(true);
    expect(JSON.stringify(node.logged)).toContain("starting cold");
  },
);

it("regression: a Snapshot that was deleted before the first start of its fork read like damage", async () => {
  await stored("tag");
  const actor = await granted(key.uid, { stored: tag, golden: false });
  await node.tags.delete(tag);
  await expect.poll(async () => (await node.storeKeys()).filter((path) => path.includes("/tag/"))).toEqual([]);
  await expect(actor.resume()).rejects.toMatchObject({ code: "SNAPSHOT_MISSING" });
  await expect(actor.resume({ from: { kind: "tag", tag } })).rejects.toMatchObject({
    code: "SNAPSHOT_MISSING",
    message: expect.stringMatching(/it was deleted, .*: start from another Snapshot or generation$/) as string,
  });
});

it("a tag that cannot be had fails the start, naming the Snapshot and the fix", async () => {
  const actor = await granted(key.uid, { stored: tag, golden: false });
  const failed = actor.resume();
  await expect(failed).rejects.toMatchObject({ code: "SNAPSHOT_MISSING" });
  await expect(failed).rejects.toThrow(
    /^Snapshot default\/tag has no data in store default: it was deleted, .*nothing of actor default\/a, which begins from it, was saved yet: delete the Actor and create an Actor whose spec.source names another Snapshot$/,
  );
  expect(node.runtime.sandboxes.size + node.ledger.state().bookedBytes).toBe(0);
});

it("a person's choice of a tag counts above what was saved, over a crash, until something new is saved", async () => {
  await stored("tag");
  const actor = await granted(key.uid, undefined);
  await actor.resume();
  node.runtime.only().memory = 1;
  await suspend(actor);
  await actor.resume({ from: { kind: "tag", tag } });
  expect(node.runtime.only().memory).toBe(5);
  node.runtime.sandboxes.clear();
  await node.restart();
  const again = node.actors.get(key.uid);
  await again.resume();
  expect(node.runtime.only().memory).toBe(5);
  node.runtime.only().memory = 7;
  await suspend(again);
  expect(again.generations.newest()?.generation).toBe(2);
  await again.resume();
  expect(node.runtime.only().memory).toBe(7);
});

it("a crash's message promised a cold start though the next one goes back to the tag, its volumes with it", async () => {
  const volumeMounts = [{ name: "data", mountPath: "/data", sizeLimitBytes: 0 }];
  await stored("tag", { volumeMounts });
  const actor = await granted(key.uid, { stored: tag, golden: false }, { volumeMounts });
  for (const from of [undefined, { kind: "tag", tag } as const]) {
    await actor.resume(from && { from });
    node.runtime.end({ code: 3 });
    await actor.checkAlive();
    const next = "starts it from tag tag, its volumes with it";
    expect(actor.record.crash?.message).toBe(`its program exited with code 3; the next resume ${next}`);
    expect(`starts it ${actor.nextStart}`).toBe(next);
    await actor.resume({ from: { kind: "boot" } });
    expect(actor.nextStart).toBe("anew, with its volumes as they are");
    await suspend(actor);
    expect(actor.nextStart).toMatch(/^from generation \d, its volumes with it$/);
  }
});

it("what a program wrote that was started cold for want of its golden snapshot was given up for that snapshot", async () => {
  const volumeMounts = [{ name: "data", mountPath: "/data", sizeLimitBytes: 0 }];
  await stored("golden", { volumeMounts });
  const actor = await granted(key.uid, { stored: snapshotPrefix("golden"), golden: true }, { volumeMounts });
  node.runtime.failNext.restore = new SubstrateError("RESTORE_FAILED", "no");
  await actor.resume();
  node.runtime.sandboxes.clear();
  await actor.checkAlive();
  expect(actor.nextStart).toBe("anew, with its volumes as they are");
  await node.restart();
  const again = node.actors.get(key.uid);
  await again.resume();
  expect(again.record.sandbox?.cold).toBe(true);
});

it("its volume data is the bottom of the actor's, and stays while an actor's stack names it", async () => {
  const volumeMounts = [{ name: "data", mountPath: "/data", sizeLimitBytes: 0 }];
  await stored("tag", { volumeMounts });
  const actor = await granted(key.uid, { stored: tag, golden: false }, { volumeMounts });
  await actor.resume();
  expect(actor.record.volumes.stacks).toEqual([{ name: "data", layers: [{ own: 1 }, { origin: "tag" }] }]);
  await node.origins.forget("tag");
  expect(await readdir(join(node.dir, "origins"))).toEqual(["tag"]);
  await suspend(actor);
  await node.restart();
  await node.origins.sweep();
  expect(await readdir(join(node.dir, "origins"))).toEqual(["tag"]);
  await node.actors.release({ ...key }, 1, { deleting: true, clusterUid });
  await node.origins.sweep();
  expect(await readdir(join(node.dir, "origins"))).toEqual([]);
});

it("a load under way keeps its files, also when the atelet is another one by then", async () => {
  await stored("tag");
  const gate = Promise.withResolvers<undefined>();
  node.runtime.hold.load = gate.promise.then(() => undefined);
  const actor = await granted(key.uid, { stored: tag, golden: false });
  await actor.resume();
  await node.restart();
  await node.origins.forget("tag");
  expect(await readdir(join(node.dir, "origins"))).toEqual(["tag"]);
  gate.resolve(undefined);
  await expect.poll(() => readdir(join(node.dir, "origins"))).toEqual([]);
  await rm(join(node.dir, "store"), { recursive: true });
});

it("a golden snapshot whose program does not live on made every new actor wait in vain", async () => {
  const golden = snapshotPrefix("golden");
  await stored("golden");
  const restore = vi.spyOn(node.runtime, "restore").mockRejectedValue(new SubstrateError("RESTORE_FAILED", "EOF"));
  for (let i = 0; i < 5; i += 1) {
    const actor = await granted(randomUUID(), { stored: golden, golden: true });
    await actor.resume();
    expect(actor.state).toBe("RUNNING");
  }
  expect(restore).toHaveBeenCalledTimes(3);
});
