import { randomUUID } from "node:crypto";
import { mkdir, readdir, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Actor } from "./actor.ts";
import { ObjectSnapshotStore } from "../store/object-snapshots.ts";
import { Releases } from "./releases.ts";
import { assignment, clusterUid, key, TestNode } from "./test-node.ts";
import { Uploader } from "./uploader.ts";

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(async () => {
  await node.stop();
});
async function granted(epoch = 1): Promise<Actor> {
  const grant = { epoch, session: node.session };
  await node.actors.assign(assignment(grant));
  return node.actors.get(key.uid);
}
const suspend = (actor: Actor, mode: "ASYNC" | "SYNC" = "ASYNC") =>
  actor.suspend({
    operationId: randomUUID(),
    mode,
    force: false,
    targetGeneration: (actor.generations.newest()?.generation ?? 0) + 1,
  });
/** A folder in the place of the temporary file: no record can be written, as on a full disk. */
const unwritable = (actor: Actor): string => join(actor.files.dir, "record.json.tmp");

it("a failed suspend whose record cannot be saved opens the gate again", async () => {
  const actor = await granted();
  await actor.resume();
  await mkdir(unwritable(actor));
  node.runtime.failNext.checkpoint = new SubstrateError("CHECKPOINT_FAILED", "disk full");
  await expect(suspend(actor)).rejects.toThrow();
  expect(actor.state).toBe("RUNNING");
  expect(node.routers.routes.get(key.uid)?.state).toBe("RUNNING");
});

it("a resume whose record cannot be saved leaves nothing that runs unrecorded", async () => {
  const actor = await granted();
  await mkdir(unwritable(actor));
  await expect(actor.resume()).rejects.toThrow();
  expect(node.runtime.sandboxes.size).toBe(0);
  expect(actor.state).toBe("SUSPENDED");
  expect(node.ledger.state().bookedBytes).toBe(0);
});

it("a damaged record, and the operator repeats the same epoch: nothing starts from nothing beside a stored state", async () => {
  const actor = await granted();
  await actor.resume();
  node.runtime.only().memory = 31;
  await suspend(actor, "SYNC");
  await writeFile(join(actor.files.dir, "record.json"), "");
  await node.restart();
  // the session is the supervisor's and lives on: the grant in the status is still valid for the operator
  const again = await granted(1).catch(() => granted(2));
  await again.resume();
  expect(node.runtime.only().memory).toBe(31);
});

it("a damaged record beside a generation that is only here: it is found and used, and said", async () => {
  const actor = await granted();
  await actor.resume();
  node.runtime.only().memory = 32;
  await suspend(actor);
  await writeFile(join(actor.files.dir, "record.json"), "{");
  await node.restart();
  const again = await granted(1);
  expect(again.record.crash?.message).toMatch(/record on the node was lost; generation 1 was found/);
  await again.resume();
  expect(node.runtime.only().memory).toBe(32);
});

it("an actor that was deleted while its record was damaged leaves no files", async () => {
  const actor = await granted();
  await actor.resume();
  await suspend(actor);
  await writeFile(join(actor.files.dir, "record.json"), "{");
  await node.restart();
  await node.actors.release(key, 1, { deleting: true, clusterUid });
  expect(await readdir(join(node.dir, "actors"))).toEqual([]);
});

it("a log that cannot be copied for lack of space is cut all the same", async () => {
  const actor = await granted();
  await actor.resume();
  const looking = new AbortController();
  void node.context.outputs.run(looking.signal);
  // a folder in the copy's place: the copy fails as on a full disk
  await mkdir(join(`${actor.files.log}.1`, "x"), { recursive: true });
  await writeFile(actor.files.log, Buffer.alloc(9 * 2 ** 20));
  await vi.waitFor(
    async () => {
      expect((await stat(actor.files.log)).size).toBe(0);
    },
    { timeout: 20_000 },
  );
  looking.abort();
});

it("a part of a replaced generation that had reached the store is removed with the next upload", async () => {
  const actor = await granted();
  await actor.resume();
  await suspend(actor);
  const part = join(node.storeDir, clusterUid, key.namespaceUid, key.uid, "1-1", "checkpoint.img");
  await mkdir(dirname(part), { recursive: true });
  await writeFile(part, "half");
  const pending = actor.generations.newest();
  if (pending !== undefined) pending.storage.message = "upload failed";
  await actor.resume();
  await suspend(actor, "SYNC");
  await vi.waitFor(async () => {
    expect((await node.storeKeys()).some((name) => name.includes("/1-1/"))).toBe(false);
  });
});

it("an upload that the atelet's end cut off while a newer generation was there left its parts in the store", async () => {
  const actor = await granted();
  await actor.resume();
  await suspend(actor);
  const part = join(node.storeDir, clusterUid, key.namespaceUid, key.uid, "1-1", "pages.img");
  await mkdir(dirname(part), { recursive: true });
  await writeFile(part, "half");
  const pending = actor.generations.newest();
  if (pending !== undefined) pending.storage.message = "being uploaded";
  await actor.resume();
  // what is being uploaded is not dropped for the newer one
  const drop = vi.spyOn(Uploader.prototype, "dropReplaced").mockReturnValueOnce(undefined);
  await suspend(actor);
  drop.mockRestore();
  await node.restart();
  expect(
    node.actors
      .get(key.uid)
      .generations.all()
      .map(({ generation }) => generation),
  ).toEqual([2, 1]);
  await suspend(node.actors.get(key.uid), "SYNC");
  await vi.waitFor(async () => {
    expect((await node.storeKeys()).filter((name) => name.includes("/1-1/"))).toEqual([]);
  });
});

it("an upload that the atelet's end cut off left its parts in the store, when the actor was saved again before the next one", async () => {
  const actor = await granted();
  await actor.resume();
  const part = join(node.storeDir, clusterUid, key.namespaceUid, key.uid, "1-1", "pages.img");
  const begun = Promise.withResolvers<undefined>();
  const commit = vi.spyOn(ObjectSnapshotStore.prototype, "commit").mockImplementationOnce(async () => {
    await mkdir(dirname(part), { recursive: true });
    await writeFile(part, "half");
    begun.resolve(undefined);
    return new Promise<never>(() => undefined);
  });
  void suspend(actor, "SYNC").catch(() => undefined);
  await begun.promise;
  commit.mockRestore();
  await node.restart();
  const again = node.actors.get(key.uid);
  await again.resume();
  await suspend(again, "SYNC");
  await vi.waitFor(async () => {
    expect((await node.storeKeys()).filter((name) => name.includes("/1-1/"))).toEqual([]);
  });
});

it("a failed checkpoint whose files cannot be removed does not leave the actor paused", async () => {
  const actor = await granted();
  await actor.resume();
  vi.spyOn(actor.generations, "abandon").mockRejectedValueOnce(new Error("EROFS: read-only file system"));
  node.runtime.failNext.checkpoint = new SubstrateError("CHECKPOINT_FAILED", "read-only");
  await expect(suspend(actor)).rejects.toMatchObject({ code: "CHECKPOINT_FAILED" });
  expect(node.runtime.only().status).toBe("running");
  expect(node.network.blocked.size).toBe(0);
  expect(actor.state).toBe("RUNNING");
});

it("a checkpoint that its sandbox did not survive left its files on a disk that may be full", async () => {
  const actor = await granted();
  await actor.resume();
  vi.spyOn(node.runtime, "resume").mockRejectedValueOnce(new Error("no such sandbox"));
  node.runtime.failNext.checkpoint = new SubstrateError("CHECKPOINT_FAILED", "no space left on device");
  await expect(suspend(actor)).rejects.toThrow(/did not survive it: no space left on device/);
  expect(await readdir(actor.files.generations)).toEqual([]);
});

it("a hold that could not be written is not taken for recorded at the next try", async () => {
  const actor = await granted();
  await mkdir(unwritable(actor));
  await expect(actor.hold(true)).rejects.toThrow();
  expect(node.routers.routes.get(key.uid)?.state).toBe("ASLEEP");
  await rm(unwritable(actor), { recursive: true });
  await actor.hold(true);
  await node.restart();
  await expect(node.actors.get(key.uid).resume()).rejects.toMatchObject({ code: "HELD" });
});

it("R6: a snapshot without a loan is written around the page cache, one with a loan through it", async () => {
  const actor = await granted();
  await actor.resume();
  const checkpoint = vi.spyOn(node.runtime, "checkpoint");
  await suspend(actor);
  await actor.resume();
  vi.spyOn(node.ledger, "borrow").mockResolvedValueOnce(undefined);
  await suspend(actor);
  expect(checkpoint.mock.calls.map((call) => (call as unknown[])[2])).toEqual([{ direct: false }, { direct: true }]);
});

it("no room is no crash: a wake is not slowed down when room has come", async () => {
  const big = node.ledger.adopt(2 ** 30 - 2 ** 20);
  const actor = await granted();
  for (let i = 0; i < 2; i++) await expect(actor.resume()).rejects.toMatchObject({ code: "NO_ROOM" });
  big.free();
  await actor.resume();
});

it("a generation that could not be restored does not take the place of the last good one in the store", async () => {
  const actor = await granted();
  await actor.resume();
  await suspend(actor, "SYNC");
  await actor.resume();
  await suspend(actor);
  node.runtime.failNext.restore = new SubstrateError("RESTORE_FAILED", "EOF");
  await expect(actor.resume()).rejects.toMatchObject({ code: "RESTORE_FAILED" });
  await suspend(actor, "SYNC").catch(() => undefined);
  // collecting follows the answer; a poll with a deadline that must never succeed
  const collected = vi.waitFor(
    () => {
      expect(actor.generations.all().map(({ generation }) => generation)).not.toContain(1);
    },
    { timeout: 20_000 },
  );
  await expect(collected).rejects.toThrow();
});

it("an older generation that was not removed yet when the atelet ended, or the actor was to leave, stayed in the store", async () => {
  const actor = await granted();
  await actor.resume();
  await suspend(actor, "SYNC");
  await actor.resume();
  const down = new SubstrateError("STORE_UNAVAILABLE", "the store is away");
  const collect = vi.spyOn(ObjectSnapshotStore.prototype, "collect").mockRejectedValue(down);
  try {
    await suspend(actor, "SYNC");
    await expect(node.actors.release(key, 1, { deleting: false, clusterUid })).rejects.toMatchObject({
      code: "NOT_RELEASABLE",
    });
  } finally {
    collect.mockRestore();
  }
  expect((await node.storeKeys()).some((name) => name.includes("/1-1/"))).toBe(true);
  await node.restart();
  await vi.waitFor(async () => {
    expect((await node.storeKeys()).filter((name) => name.includes("/1-1/"))).toEqual([]);
  });
  await vi.waitFor(() => node.actors.release(key, 1, { deleting: false, clusterUid }));
});

it("a release that the atelet's end cut off left generations on the node, or took those of a lost record with it", async () => {
  const actor = await granted();
  await actor.resume();
  await suspend(actor);
  await rm(join(actor.files.dir, "record.json"));
  await node.restart();
  const lost = node.actors.release(key, 1, { deleting: false, clusterUid });
  await expect(lost).rejects.toMatchObject({ code: "NOT_RELEASABLE" });
  const again = await granted(2);
  await again.resume();
  await suspend(again, "SYNC");
  await node.actors.release(key, 2, { deleting: false, clusterUid });
  const home = join(again.files.generations, "1");
  await mkdir(home, { recursive: true });
  const record = { format: 1, generation: 1, epoch: 2, revision: "r", imageDigest: "d", runtime: "fake-1" };
  await writeFile(join(home, "generation.json"), JSON.stringify({ ...record, createdAtMs: 1, files: [] }));
  await node.restart();
  expect(await readdir(dirname(again.files.dir))).toEqual([]);
});

it("a wake that comes while a release is being written down hears MOVED; its sandbox was started and taken away", async () => {
  const actor = await granted();
  await actor.resume();
  await suspend(actor, "SYNC");
  let woken: Promise<void> | undefined;
  const recording = vi.spyOn(Releases.prototype, "record");
  recording.mockImplementationOnce(async function (this: Releases, ...args) {
    woken = actor.resume();
    woken.catch(() => undefined);
    await this.record(...args);
  });
  await node.actors.release(key, 1, { deleting: false, clusterUid });
  await expect(woken).rejects.toMatchObject({ code: "MOVED" });
  expect(node.runtime.sandboxes.size).toBe(0);
});

it("a wake that comes while a release asks the store wins, and what it has started is not taken away", async () => {
  const actor = await granted();
  await actor.resume();
  node.runtime.only().memory = 47;
  await suspend(actor);
  const asking = vi.spyOn(ObjectSnapshotStore.prototype, "head");
  asking.mockImplementationOnce(async () => {
    await actor.resume();
    return { generation: 1, manifest: null, epoch: 2 };
  });
  const released = node.actors.release(key, 1, { deleting: false, clusterUid });
  await expect(released).rejects.toMatchObject({ code: "NOT_RELEASABLE" });
  expect(node.runtime.only().memory).toBe(47);
});
