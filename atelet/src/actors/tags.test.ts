import { randomUUID } from "node:crypto";
import { readdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { type Actor } from "./actor.ts";
import { type Program } from "./record.ts";
import { assignment, clusterUid, key, program, snapshotPrefix, TestNode } from "./test-node.ts";

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(async () => {
  await node.stop();
});

const withVolume = { volumeMounts: [{ name: "data", mountPath: "/data", sizeLimitBytes: 0 }] };

async function running(memory: number, changes: Partial<Program> = {}): Promise<Actor> {
  await node.actors.assign(assignment({ epoch: 1, session: node.session }, { program: program(changes) }));
  const actor = node.actors.get(key.uid);
  await actor.resume();
  node.runtime.only().memory = memory;
  return actor;
}

const suspend = (actor: Actor, targetGeneration = (actor.generations.newest()?.generation ?? 0) + 1) =>
  actor.suspend({ operationId: randomUUID(), mode: "ASYNC", force: false, targetGeneration });
const tag = (uid: string, epoch = 1) =>
  node.tags.tag({ actor: key, epoch, target: snapshotPrefix(uid), operationId: `op-${uid}` });

/** The memory that a tag has. */
const tagged = (uid: string) => node.storedPages(uid);
const starts = () => node.runtime.starts;

it("a running actor is saved and goes on in the same sandbox, with requests open", async () => {
  const actor = await running(4);
  node.routers.open = 3;
  const before = starts();
  const stored = await tag("t");
  expect(await tagged("t")).toBe("4");
  expect(stored.manifest).toMatchObject({ actor: { uid: "t" }, copyOf: { generation: 1, actorUid: key.uid } });
  expect(starts()).toBe(before);
  expect(node.runtime.only().status).toBe("running");
  expect(node.network.blocked.size).toBe(0);
  expect(node.routers.routes.get(key.uid)?.state).toBe("RUNNING");
  expect(actor.record.lastOperation).toMatchObject({ id: "op-t", type: "TAG", result: "SUCCEEDED" });
  expect(actor.record.tags).toEqual([]);
  // Asked again it is the same, whatever has happened since.
  node.runtime.only().memory = 5;
  expect((await tag("t")).digest).toBe(stored.digest);
  expect(actor.generations.newest()?.generation).toBe(1);
});

it("what it does after the tag counts: a suspend for the same generation is made, a crash is one", async () => {
  const actor = await running(4);
  await tag("t");
  node.runtime.only().memory = 5;
  await suspend(actor, 1);
  expect(actor.state).toBe("SUSPENDED");
  await actor.resume();
  expect(node.runtime.only().memory).toBe(5);
  await tag("u");
  node.runtime.sandboxes.clear();
  await node.restart();
  expect(node.actors.get(key.uid).state).toBe("CRASHED");
});

it("with volumes it is suspended and resumed, and its open requests are waited for", async () => {
  const actor = await running(4, withVolume);
  node.routers.open = 1;
  await expect(tag("t")).rejects.toMatchObject({ code: "REQUESTS_OPEN" });
  expect(actor.state).toBe("RUNNING");
  node.routers.open = 0;
  const before = starts();
  const { manifest } = await tag("t");
  expect(manifest.files.map(({ name }) => name)).toEqual(["volume-data.tar"]);
  expect(starts()).toBe(before + 1);
  expect(actor.state).toBe("RUNNING");
});

it("a sleeping actor's newest generation is copied, from the node or within the store; it outlives the actor", async () => {
  const actor = await running(6);
  await suspend(actor);
  expect((await tag("t")).manifest.copyOf?.generation).toBe(1);
  expect(actor.generations.newest()?.storage.state).toBe("PENDING");
  await actor.suspend({ operationId: "x", mode: "SYNC", force: false, targetGeneration: 1 });
  await tag("u");
  await node.actors.release(key, 1, { deleting: true, clusterUid });
  await vi.waitFor(async () => {
    expect((await node.storeKeys()).some((path) => path.includes(`/${key.uid}/`))).toBe(false);
  });
  expect([await tagged("t"), await tagged("u")]).toEqual(["6", "6"]);
});

it("nobody has the actor: what its head names is copied", async () => {
  const actor = await running(7);
  await expect(tag("early", 0)).rejects.toThrow(/default\/a has no state yet/);
  await actor.suspend({ operationId: "x", mode: "SYNC", force: false, targetGeneration: 1 });
  await node.actors.release(key, 1, { deleting: false, clusterUid });
  await tag("t", 0);
  expect(await tagged("t")).toBe("7");
});

it("an actor that never ran has nothing to tag", async () => {
  await node.actors.assign(assignment({ epoch: 1, session: node.session }));
  await expect(tag("t")).rejects.toMatchObject({ code: "INVALID" });
});

it("a checkpoint that fails leaves the actor running", async () => {
  const actor = await running(4);
  node.runtime.failNext.checkpoint = new SubstrateError("CHECKPOINT_FAILED", "disk full");
  await expect(tag("t")).rejects.toMatchObject({ code: "CHECKPOINT_FAILED" });
  expect([actor.state, node.runtime.only().status]).toEqual(["RUNNING", "running"]);
  expect(node.routers.routes.get(key.uid)?.state).toBe("RUNNING");
});

it("a try after an outage, and after a kill of the atelet, stores what the first one saved", async () => {
  const actor = await running(4);
  // The store is opened, and then away.
  await tag("before");
  node.runtime.only().memory = 5;
  await rename(node.storeDir, `${node.storeDir}.away`);
  await expect(tag("t")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  node.runtime.only().memory = 6;
  await suspend(actor);
  await actor.resume();
  node.runtime.only().memory = 7;
  await suspend(actor);
  await node.restart();
  await rename(`${node.storeDir}.away`, node.storeDir);
  expect((await tag("t")).manifest.copyOf?.generation).toBe(2);
  expect(await tagged("t")).toBe("5");
  // Only now is that generation like any other that was replaced.
  expect(await readdir(join(node.dir, "actors", key.uid, "generations"))).toEqual(["4"]);
});

it("a tag that is deleted while it is on its way is gone in the end, and can't be made again", async () => {
  const actor = await running(4);
  await tag("before");
  await rename(node.storeDir, `${node.storeDir}.away`);
  await expect(tag("t")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  await node.tags.delete(snapshotPrefix("t"));
  expect(actor.record.tags).toEqual([]);
  await expect(tag("t")).rejects.toThrow(/Snapshot default\/t is being deleted/);
  await rename(`${node.storeDir}.away`, node.storeDir);
  await node.tags.delete(snapshotPrefix("before"));
  await vi.waitFor(async () => {
    expect((await node.storeKeys()).filter((path) => /\/(t|before)\//.test(path))).toEqual([]);
    expect(await readdir(join(node.dir, "tombstones"))).toEqual([]);
  });
});
