import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { readdir, readFile, rename, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { AsideFolder } from "../generations/aside.ts";
import { type Actor } from "./actor.ts";
import { type Program } from "./record.ts";
import { assignment, clusterUid, key, program, TestNode } from "./test-node.ts";

vi.setConfig({ testTimeout: 20_000 });

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(async () => {
  vi.restoreAllMocks();
  await node.stop();
});

const volumeMounts = [{ name: "data", mountPath: "/data", sizeLimitBytes: 0 }];
const boot = { from: { kind: "boot" } } as const;
const soon = { timeout: 10_000 };
const damaged = { code: "SNAPSHOT_DAMAGED" };

async function granted(changes: Partial<Program> = {}, epoch = 1): Promise<Actor> {
  await node.actors.assign(assignment({ epoch, session: node.session }, { program: program(changes) }));
  return node.actors.get(key.uid);
}
async function suspend(actor: Actor, memory: number, mode: "ASYNC" | "SYNC" = "ASYNC"): Promise<void> {
  node.runtime.only().memory = memory;
  const targetGeneration = (actor.generations.newest()?.generation ?? 0) + 1;
  await actor.suspend({ operationId: randomUUID(), mode, force: false, targetGeneration });
}
const storage = (actor: Actor): string[] =>
  actor.generations.all().map(({ generation, storage }) => `${generation} ${storage.state}`);
const pagesOf = (actor: Actor, generation: number): string => join(actor.generations.path(generation), "pages.img");
const here = (actor: Actor): Promise<string[]> => readdir(actor.files.generations);
const evidence = (actor: Actor, generation: number): Promise<string> =>
  readFile(join(actor.files.generations, `${generation}.unreadable`, "image", "pages.img"), "utf8");

/** Asleep at its first generation, 123456, which is nowhere else, and of which only 123 is left. */
async function cut(changes: Partial<Program> = {}): Promise<Actor> {
  const actor = await granted(changes);
  await actor.resume();
  await suspend(actor, 123_456);
  // while its digests are taken somebody reads it
  await expect.poll(() => actor.generations.local(1)?.seal, soon).toBeDefined();
  await truncate(pagesOf(actor, 1), 3);
  return actor;
}

describe("the only state of an actor, damaged before it was in the store", () => {
  it("regression: was removed, and the actor began anew without being asked", async () => {
    const actor = await cut();
    const refusal = {
      ...damaged,
      message: expect.stringMatching(
        /^generation 1 of actor default\/a is lost: .*pages\.img has 3 bytes instead of 6.*"kubectl ate resume a --boot" begins anew; .*1\.unreadable$/,
      ) as string,
    };
    await expect(actor.resume()).rejects.toMatchObject(refusal);
    expect(node.runtime.sandboxes.size + node.ledger.state().bookedBytes).toBe(0);
    expect(await here(actor)).toEqual(["1.unreadable"]);
    expect(await evidence(actor, 1)).toBe("123");
    expect(storage(actor)).toEqual(["1 LOST"]);
    expect(actor.record.crash?.message).toContain("generation 1 was lost");
    expect(node.routers.routes.get(key.uid)).toMatchObject({ state: "FAILING", reason: "SNAPSHOT_DAMAGED" });
    expect(actor.damage).toMatch(/^generation 1 of actor default\/a is lost/);

    await node.restart();
    const again = node.actors.get(key.uid);
    for (let wake = 0; wake < 4; wake += 1) await expect(again.resume()).rejects.toMatchObject(refusal);
    expect(again.record.crashLoop).toBeUndefined();
    expect(await evidence(again, 1)).toBe("123");
  });

  it("is not lost if the store has it, which was not written down", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor, 123_456, "SYNC");
    await expect.poll(() => actor.record.packsToCollect, soon).toBe(false);
    const [generation] = actor.generations.all();
    if (generation === undefined) throw new Error("there is none");
    generation.storage = { ...generation.storage, state: "PENDING", manifest: "", location: "", completedAtMs: 0 };
    await actor.files.save(actor.record, { durable: false });
    await writeFile(join(actor.files.generations, "1", "generation.json"), "");
    await node.restart();
    const again = node.actors.get(key.uid);
    expect(again.nextStart).toBe("from generation 1, if the store has it");
    expect(node.routers.routes.get(key.uid)?.state).toBe("ASLEEP");
    await again.resume();
    expect(node.runtime.only().memory).toBe(123_456);
    expect(storage(again)).toEqual(["1 COMPLETED"]);
  });

  it("gives way to what a person begins anew, and is kept until that is in the store", async () => {
    const actor = await cut();
    await expect(actor.resume()).rejects.toMatchObject(damaged);
    await actor.resume(boot);
    expect(node.runtime.only().memory).toBe(0);
    expect(actor.damage).toBe("");
    await suspend(actor, 5);
    expect(storage(actor)).toEqual(["2 PENDING", "1 LOST"]);
    expect((await here(actor)).sort()).toEqual(["1.unreadable", "2"]);
    await node.restart();
    const again = node.actors.get(key.uid);
    await again.resume();
    expect(node.runtime.only().memory).toBe(5);
    await suspend(again, 6, "SYNC");
    await expect.poll(() => storage(again), soon).toEqual(["3 COMPLETED"]);
    await expect.poll(() => here(again), soon).toEqual(["3"]);
  });

  it("is found by a boot that comes first, and by one that a person chooses", async () => {
    const actor = await cut();
    await actor.resume(boot);
    expect(node.runtime.only().memory).toBe(0);
    await suspend(actor, 7);
    await truncate(pagesOf(actor, 2), 0);
    await expect(actor.resume({ from: { kind: "generation", generation: 2 } })).rejects.toMatchObject(damaged);
    // while its digests are taken somebody reads it
    await expect.poll(() => here(actor), soon).toContain("2.unreadable");
    expect(await evidence(actor, 2)).toBe("");
  });

  it("holds the actor on its node, and goes with it when it is deleted", async () => {
    const actor = await cut();
    await expect(actor.resume()).rejects.toMatchObject(damaged);
    const leaving = node.actors.release(key, 1, { deleting: false, clusterUid });
    await expect(leaving).rejects.toMatchObject({
      code: "NOT_RELEASABLE",
      message: expect.stringContaining("generation 1 of actor default/a is lost") as string,
    });
    await node.actors.release(key, 1, { deleting: true, clusterUid });
    expect(await readdir(join(node.dir, "actors"))).toEqual([]);
  });

  it("lets it go to another node if there is an older one in the store, and is gone then", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor, 10, "SYNC");
    await actor.resume();
    await suspend(actor, 123_456);
    await expect.poll(() => actor.generations.local(2)?.seal, soon).toBeDefined();
    await truncate(pagesOf(actor, 2), 3);
    node.runtime.failNext.restore = new SubstrateError("RESTORE_FAILED", "no");
    await expect(actor.resume()).rejects.toThrow("no");
    expect(await evidence(actor, 2)).toBe("123");
    await node.actors.release(key, 1, { deleting: false, clusterUid });
    expect(await readdir(join(node.dir, "actors"))).toEqual([]);
    const other = await TestNode.create(node.storeDir);
    try {
      await other.actors.assign(assignment({ epoch: 2, session: other.session }));
      await other.actors.get(key.uid).resume();
      expect(other.runtime.only().memory).toBe(10);
    } finally {
      await other.stop();
    }
  });

  it.each(["before it has another name", "before the record knows", "on a disk that gives it no other name"])(
    "an atelet that ends %s keeps it, and refuses the same",
    async (when) => {
      const actor = await cut();
      const never = new Promise<never>(() => undefined);
      if (when.includes("record")) vi.spyOn(actor.files, "save").mockReturnValue(never);
      else {
        const put = vi.spyOn(AsideFolder.prototype, "put");
        if (when.includes("before")) put.mockReturnValue(never);
        else put.mockRejectedValue(new Error("EROFS: read-only file system"));
      }
      const woken = actor.resume();
      if (when.includes("before")) {
        woken.catch(() => undefined);
        await expect.poll(() => storage(actor), soon).toEqual(["1 LOST"]);
        if (when.includes("record")) await expect.poll(() => here(actor), soon).toEqual(["1.unreadable"]);
      } else await expect(woken).rejects.toMatchObject(damaged);
      vi.restoreAllMocks();
      await node.restart();
      const again = node.actors.get(key.uid);
      await expect(again.resume()).rejects.toMatchObject(damaged);
      expect(await evidence(again, 1)).toBe("123");
    },
  );

  it("is what it says also where its folder is gone, its record can't be read, or the actor's neither", async () => {
    const vanished = await cut();
    await rm(join(vanished.files.generations, "1"), { recursive: true });
    await node.restart();
    const gone = { ...damaged, message: expect.stringContaining("no longer on the node") as string };
    await expect(node.actors.get(key.uid).resume()).rejects.toMatchObject(gone);
    await node.actors.get(key.uid).resume(boot);
    await suspend(node.actors.get(key.uid), 5);

    await writeFile(join(vanished.files.generations, "2", "generation.json"), "{");
    await node.restart();
    const unread = { ...damaged, message: expect.stringContaining("generation.json cannot be read") as string };
    await expect(node.actors.get(key.uid).resume()).rejects.toMatchObject(unread);

    await writeFile(join(vanished.files.dir, "record.json"), "{");
    await node.restart();
    const leaving = node.actors.release(key, 1, { deleting: false, clusterUid });
    await expect(leaving).rejects.toMatchObject({ code: "NOT_RELEASABLE" });
    const again = await granted();
    expect(again.generations.newest()?.generation).toBe(2);
    await expect(again.resume()).rejects.toMatchObject(unread);
    await again.resume(boot);
    expect(await evidence(again, 2)).toBe("5");
  });

  it("keeps the layers of its volumes, which a boot goes on with", async () => {
    const actor = await granted({ volumeMounts });
    const mnt = join(actor.files.volumes, "data", "mnt");
    await actor.resume();
    await node.mounts.write(mnt, "file", "written");
    await suspend(actor, 1, "SYNC");
    await actor.resume();
    await node.mounts.write(mnt, "file", "rewritten");
    await suspend(actor, 2);
    await truncate(pagesOf(actor, 2), 0);
    // the older one is used: nothing names the newer layer but what was set aside
    await actor.resume();
    expect(await node.mounts.read(mnt, "file")).toBe("written");
    await node.restart();
    const again = node.actors.get(key.uid);
    await again.volumes.settled();
    const layer = join(actor.files.volumes, "data", "layers", "2", "data", "file");
    expect(await readFile(layer, "utf8")).toBe("rewritten");
    await suspend(again, 3, "SYNC");
    await expect.poll(() => existsSync(layer), soon).toBe(false);
  });

  it("without a layer of its volume: a boot has what the layers below were", async () => {
    const actor = await granted({ volumeMounts });
    const mnt = join(actor.files.volumes, "data", "mnt");
    for (const content of ["1", "2"]) {
      await actor.resume();
      await node.mounts.write(mnt, "file", content);
      await suspend(actor, 1);
    }
    await rm(join(actor.files.volumes, "data", "layers", "2"), { recursive: true });
    await expect(actor.resume()).rejects.toThrow(/layer 2 of volume data is missing.*with what is here of its volumes/);
    await actor.resume(boot);
    expect(await node.mounts.read(mnt, "file")).toBe("1");
  });
});

describe("an upload of what is damaged here", () => {
  it("stores nothing of it: the older generation counts, and what is left is kept", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor, 10, "SYNC");
    await actor.resume();
    await suspend(actor, 123_456);
    await truncate(pagesOf(actor, 2), 3);
    await expect(
      actor.suspend({ operationId: randomUUID(), mode: "SYNC", force: false, targetGeneration: 2 }),
    ).rejects.toThrow(/generation 2 was not stored: .*pages\.img has 3 bytes instead of 6/);
    await expect.poll(() => here(actor), soon).toContain("2.unreadable");
    expect(await evidence(actor, 2)).toBe("123");
    expect((await node.storeKeys()).filter((path) => path.includes("/2-1/"))).toEqual([]);
    await actor.resume();
    expect(node.runtime.only().memory).toBe(10);
    await suspend(actor, 11, "SYNC");
    await expect.poll(() => here(actor), soon).toEqual(["3"]);
  });

  it("regression: what is damaged in the store of an older one made the newest state a lost one", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor, 10, "SYNC");
    await actor.resume();
    const dir = join(node.storeDir, clusterUid, "n", key.uid);
    await rename(join(dir, "head.json"), join(dir, "head.away"));
    await writeFile(join(dir, "head.json"), "{");
    void suspend(actor, 11, "SYNC").catch(() => undefined);
    await expect.poll(() => actor.generations.get(2)?.storage.message, soon).toMatch(/next try in .*head\.json/);
    await node.restart();
    await rename(join(dir, "head.away"), join(dir, "head.json"));
    const again = node.actors.get(key.uid);
    await again.resume();
    expect(node.runtime.only().memory).toBe(11);
  });
});
