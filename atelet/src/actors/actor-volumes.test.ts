import { randomUUID } from "node:crypto";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { GenerationFolder } from "../generations/folder.ts";
import { type Actor } from "./actor.ts";
import { type Fidelity, type Program } from "./record.ts";
import { assignment, clusterUid, key, program, TestNode } from "./test-node.ts";

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(async () => {
  await node.stop();
});

const volumeMounts = [{ name: "data", mountPath: "/data", sizeLimitBytes: 0 }];

async function granted(changes: Partial<Program> = {}, epoch = 1): Promise<Actor> {
  const wanted = program({ volumeMounts, ...changes });
  await node.actors.assign(assignment({ epoch, session: node.session }, { program: wanted }));
  return node.actors.get(key.uid);
}
const suspend = (actor: Actor, fidelity?: Fidelity, mode: "ASYNC" | "SYNC" = "ASYNC") =>
  actor.suspend({
    operationId: randomUUID(),
    mode,
    force: false,
    targetGeneration: (actor.generations.newest()?.generation ?? 0) + 1,
    fidelity,
  });
const mnt = (actor: Actor): string => join(actor.files.volumes, "data", "mnt");
const write = (actor: Actor, content: string) => node.mounts.write(mnt(actor), "file", content);
const read = (actor: Actor) => node.mounts.read(mnt(actor), "file");
async function killed(actor: Actor): Promise<void> {
  node.runtime.sandboxes.clear();
  await vi.waitFor(() => {
    expect(actor.state).toBe("CRASHED");
  }, 3000);
}

describe("an actor with a volume", () => {
  it("a checkpoint that fails leaves it running, its volume mounted as it was", async () => {
    const actor = await granted();
    await actor.resume();
    await write(actor, "1");
    const before = structuredClone(actor.record.volumes);
    node.runtime.failNext.checkpoint = new SubstrateError("CHECKPOINT_FAILED", "disk full");
    await expect(suspend(actor)).rejects.toMatchObject({ code: "CHECKPOINT_FAILED" });
    expect(actor.state).toBe("RUNNING");
    expect(actor.record.volumes).toEqual(before);
    expect(await read(actor)).toBe("1");
    await suspend(actor);
    expect(node.mounts.mounted.size).toBe(0);
  });

  it("a start that fails leaves its volume as it was, and nothing mounted", async () => {
    const actor = await granted();
    await actor.resume();
    await write(actor, "1");
    await suspend(actor);
    const before = structuredClone(actor.record.volumes);
    node.runtime.failNext.restore = new SubstrateError("RESTORE_FAILED", "no");
    await expect(actor.resume()).rejects.toMatchObject({ code: "RESTORE_FAILED" });
    expect(actor.record.volumes).toEqual(before);
    expect(node.mounts.mounted.size).toBe(0);
    await actor.volumes.settled();
    expect(await readdir(join(actor.files.volumes, "data", "layers"))).toEqual(["1"]);
    node.mounts.failNext = new SubstrateError("INTERNAL", "no such file system");
    await expect(actor.resume()).rejects.toMatchObject({ message: expect.stringContaining("no such") as string });
    await actor.resume();
    expect(await read(actor)).toBe("1");
  });

  it("goes back with the memory after a crash, and is kept where the program starts cold", async () => {
    const actor = await granted();
    await actor.resume();
    await write(actor, "saved");
    await suspend(actor);
    await actor.resume();
    await write(actor, "lost with the memory");
    await killed(actor);
    await vi.waitFor(() => actor.resume(), 3000);
    expect(await read(actor)).toBe("saved");
    await suspend(actor, "Data");
    await actor.resume();
    await write(actor, "kept");
    await killed(actor);
    expect(actor.record.crash?.message).toContain("starts it cold from generation 2, with its volumes as they are");
    await expect(node.actors.release(key, 1, { deleting: false, clusterUid })).rejects.toMatchObject({
      code: "NOT_RELEASABLE",
      message: expect.stringContaining("its volumes hold what no snapshot has") as string,
    });
    await vi.waitFor(() => actor.resume(), 3000);
    expect(await read(actor)).toBe("kept");
  });

  it("is adopted with its running sandbox, and its layers with a generation that no record knows yet", async () => {
    let actor = await granted();
    await actor.resume();
    await write(actor, "1");
    await node.restart();
    actor = node.actors.get(key.uid);
    expect(actor.state).toBe("RUNNING");
    expect(await read(actor)).toBe("1");
    // killed between the commit and the end of the sandbox
    vi.spyOn(node.runtime, "delete").mockImplementationOnce(() => new Promise(() => undefined));
    void suspend(actor);
    await vi.waitFor(() => stat(join(actor.files.generations, "1")));
    await node.restart();
    actor = node.actors.get(key.uid);
    expect(node.mounts.mounted.size).toBe(0);
    expect(actor.record.volumes).toMatchObject({ base: { generation: 1, epoch: 1 }, unsaved: false });
    await actor.resume();
    expect(await read(actor)).toBe("1");
  });

  it("moves with its volume, whatever was saved of it", async () => {
    for (const [index, fidelity] of (["Memory", "Rootfs", "Data"] as const).entries()) {
      const actor = await granted({ onSuspend: fidelity }, 2 * index + 1);
      await actor.resume();
      await write(actor, fidelity);
      await suspend(actor, undefined, "SYNC");
      expect(actor.generations.newest()).toMatchObject({ fidelity, storage: { state: "COMPLETED" } });
      const other = await TestNode.create(node.storeDir);
      try {
        const wanted = program({ volumeMounts, onSuspend: fidelity });
        await other.actors.assign(assignment({ epoch: 2 * index + 2, session: other.session }, { program: wanted }));
        const moved = other.actors.get(key.uid);
        await moved.resume();
        expect(await other.mounts.read(mnt(moved), "file")).toBe(fidelity);
      } finally {
        await other.stop();
      }
    }
  });

  it("fidelity Data of an actor without volumes is refused, with what to do", async () => {
    const actor = await granted({ volumeMounts: [] });
    await actor.resume();
    await expect(suspend(actor, "Data")).rejects.toMatchObject({
      code: "INVALID",
      message: expect.stringContaining("add a durableDir") as string,
    });
    expect(actor.state).toBe("RUNNING");
  });

  it("a sizeLimit that an assignment changed reached neither the running actor nor what is said of a sleeping one", async () => {
    const limited = (sizeLimitBytes: number) =>
      granted({ volumeMounts: [{ name: "data", mountPath: "/data", sizeLimitBytes }] });
    const actor = await limited(1);
    await actor.resume();
    await write(actor, "more than that");
    await limited(2 ** 30);
    await vi.waitFor(() => {
      expect(actor.volumeUsage()).toMatchObject([{ name: "data", limitBytes: 2 ** 30 }]);
    }, 3000);
    await limited(2 ** 31);
    expect(actor.volumeUsage()).toMatchObject([{ limitBytes: 2 ** 31 }]);
    await suspend(actor);
    await limited(2 ** 32);
    expect(actor.volumeUsage()).toMatchObject([{ limitBytes: 2 ** 32 }]);
  });

  it("keeps as many completed generations as its history says", async () => {
    const actor = await granted({ history: 2 });
    for (let count = 1; count <= 4; count += 1) {
      await actor.resume();
      await write(actor, String(count));
      await suspend(actor, undefined, "SYNC");
    }
    await vi.waitFor(async () => {
      expect(actor.generations.all().map(({ generation }) => generation)).toEqual([4, 3]);
      expect((await node.storeKeys()).filter((path) => path.endsWith("volume-data.tar"))).toHaveLength(2);
    });
  });

  it("regression: layers made one while its generation was looked at made that a lost one, and its program began anew", async () => {
    const actor = await granted();
    let free!: () => void;
    const busy = new Promise<void>((resolve) => (free = resolve));
    for (let count = 1; count <= 9; count += 1) {
      await actor.resume();
      await write(actor, String(count));
      if (count === 9) for (let job = 0; job < 2; job += 1) void node.context.volumes.jobs(() => busy);
      await suspend(actor);
    }
    vi.spyOn(GenerationFolder.prototype, "check").mockImplementationOnce(async () => {
      free();
      await actor.volumes.settled();
      return { seal: undefined };
    });
    await actor.resume();
    expect(actor.record.sandbox).toMatchObject({ cold: false, fromGeneration: 9 });
    expect(await read(actor)).toBe("9");
  });

  it("leaves no mount and no folder when it is deleted", async () => {
    const actor = await granted();
    await actor.resume();
    await node.actors.release(key, 1, { deleting: true, clusterUid });
    expect(node.mounts.mounted.size).toBe(0);
    await expect(stat(actor.files.dir)).rejects.toMatchObject({ code: "ENOENT" });
  });
});
