import { randomUUID } from "node:crypto";
import { chmod, open, readdir, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { WriteBack } from "../writeback/writeback.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Actor } from "./actor.ts";
import { type Program } from "./record.ts";
import { assignment, clusterUid, key, program, TestNode } from "./test-node.ts";

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(async () => {
  await node.stop();
});

async function granted(epoch = 1, changes: Partial<Program> = {}): Promise<Actor> {
  await node.actors.assign(assignment({ epoch, session: node.session }, { program: program(changes) }));
  return node.actors.get(key.uid);
}
const target = (actor: Actor): number => (actor.generations.newest()?.generation ?? 0) + 1;
const suspend = (actor: Actor, mode: "ASYNC" | "SYNC" = "ASYNC", force = false) =>
  actor.suspend({ operationId: randomUUID(), mode, force, targetGeneration: target(actor) });
const storage = (actor: Actor): string[] =>
  actor.generations.all().map(({ generation, storage }) => `${generation} ${storage.state}`);
const release = (epoch: number, deleting = false) => node.actors.release(key, epoch, { deleting, clusterUid });

describe("grants (design.md §7)", () => {
  it("refuses an ended session, an epoch that is not above every recorded one, and takes a repeated one", async () => {
    await expect(node.actors.assign(assignment({ epoch: 1, session: "old" }))).rejects.toMatchObject({
      code: "STALE_SESSION",
    });
    await granted(5);
    await granted(5);
    await expect(granted(4)).rejects.toMatchObject({ code: "MOVED" });
    node.session = "s2";
    await expect(granted(5)).rejects.toMatchObject({ code: "MOVED" });
    await granted(6);
  });

  it("a release is remembered, also for an epoch never received, and over a restart", async () => {
    await release(7);
    await node.restart();
    await expect(granted(7)).rejects.toMatchObject({ code: "MOVED" });
    await granted(8);
  });

  it("a resume that is under way when the session ends is cut too", async () => {
    const actor = await granted(1);
    await actor.resume();
    await suspend(actor);
    const gate = Promise.withResolvers<undefined>();
    node.runtime.hold.restore = gate.promise.then(() => undefined);
    const resumed = actor.resume();
    node.session = "s2";
    const ended = node.actors.endSession();
    gate.resolve(undefined);
    await Promise.all([resumed, ended]);
    expect(node.runtime.only().status).toBe("paused");
    expect(node.routers.routes.get(key.uid)?.state).not.toBe("RUNNING");
  });

  it("an actor does not run under a session that ended, and goes on under the next epoch", async () => {
    const actor = await granted(1);
    await actor.resume();
    node.runtime.only().memory = 41;
    node.session = "s2";
    await node.actors.endSession();
    expect(node.runtime.only().status).toBe("paused");
    await expect(actor.resume()).rejects.toMatchObject({ code: "STALE_SESSION" });
    await granted(2);
    expect(node.runtime.only()).toMatchObject({ status: "running", memory: 41 });
    expect(node.network.blocked.size).toBe(0);
  });
});

describe("suspend and resume", () => {
  it("keeps memory, frees the place, and uploads by itself after the delay", async () => {
    const actor = await granted(1, { uploadDelayMs: 10 });
    await actor.resume();
    node.runtime.only().memory = 5;
    expect(node.ledger.state().bookedBytes).toBeGreaterThan(0);
    await suspend(actor);
    expect(actor.state).toBe("SUSPENDED");
    expect(node.ledger.state().bookedBytes).toBe(0);
    expect(node.runtime.sandboxes.size + node.network.used.size).toBe(0);
    // the threads of the page engine begin with the first test
    await vi.waitFor(
      () => {
        expect(storage(actor)).toEqual(["1 COMPLETED"]);
      },
      { timeout: 10_000 },
    );
    await actor.resume();
    expect(node.runtime.only().memory).toBe(5);
  });

  it("a second suspend shows PENDING beside the older COMPLETED one; a sync one releases the older", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor, "SYNC");
    await actor.resume();
    await suspend(actor);
    expect(storage(actor)).toEqual(["2 PENDING", "1 COMPLETED"]);
    await actor.resume();
    await suspend(actor, "SYNC");
    await vi.waitFor(() => {
      expect(storage(actor)).toEqual(["3 COMPLETED"]);
    });
    await vi.waitFor(async () => {
      expect((await node.storeKeys()).filter((k) => k.includes("/1-1/"))).toEqual([]);
    });
    expect(await readdir(actor.files.generations)).toEqual(["3"]);
  });

  it("50 wakes at once start one sandbox", async () => {
    const actor = await granted();
    await Promise.all(Array.from({ length: 50 }, () => actor.resume()));
    expect(node.runtime.starts).toBe(1);
  });

  it("a resume asked during a suspend runs after it, and a sync suspend joins a running async one", async () => {
    const actor = await granted();
    await actor.resume();
    const gate = Promise.withResolvers<undefined>();
    node.runtime.hold.checkpoint = gate.promise.then(() => undefined);
    const first = suspend(actor);
    await vi.waitFor(() => {
      expect(actor.state).toBe("SUSPENDING");
      expect(node.routers.routes.get(key.uid)?.state).toBe("GATED");
    });
    const joined = suspend(actor, "SYNC");
    gate.resolve(undefined);
    await first;
    expect((await joined)?.storage.state).toBe("COMPLETED");
    expect(storage(actor)).toEqual(["1 COMPLETED"]);

    await actor.resume();
    const second = suspend(actor);
    const woken = actor.resume();
    await Promise.all([second, woken]);
    expect(actor.state).toBe("RUNNING");
  });

  it("a suspend during a resume is refused", async () => {
    const actor = await granted();
    const resumed = actor.resume();
    await expect(suspend(actor)).rejects.toMatchObject({ code: "OPERATION_IN_PROGRESS" });
    await resumed;
  });

  it("requests still open after the drain: the suspend fails and nothing happened; force cuts them", async () => {
    const actor = await granted();
    await actor.resume();
    node.routers.open = 2;
    await expect(suspend(actor)).rejects.toThrow(/2 requests are still open/);
    expect(actor.state).toBe("RUNNING");
    expect(node.routers.routes.get(key.uid)?.state).toBe("RUNNING");
    await suspend(actor, "ASYNC", true);
    expect(actor.state).toBe("SUSPENDED");
  });

  it("a repeated suspend of the same target changes nothing", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor);
    await actor.resume();
    await actor.suspend({ operationId: "again", mode: "ASYNC", force: false, targetGeneration: 1 });
    expect(actor.state).toBe("RUNNING");
  });

  it("held: every wake is refused with the reason, over a restart too, until it is let go", async () => {
    const actor = await granted();
    await actor.hold(true);
    await expect(actor.resume()).rejects.toThrow(/spec\.state Suspended/);
    await node.restart();
    await expect(node.actors.get(key.uid).resume()).rejects.toMatchObject({ code: "HELD" });
    await node.actors.get(key.uid).hold(false);
    await node.actors.get(key.uid).resume();
  });
});

describe("sync suspend", () => {
  it("its operation has no result before its generation is COMPLETED", async () => {
    const actor = await granted();
    await actor.resume();
    const seen: string[] = [];
    node.actors.onChange(() => {
      const { lastOperation } = actor.record;
      if (lastOperation?.type === "SUSPEND") seen.push(`${lastOperation.result} ${storage(actor)[0] ?? ""}`);
    });
    await suspend(actor, "SYNC");
    expect(seen).toContain("RUNNING 1 PENDING");
    expect(seen).not.toContain("SUCCEEDED 1 PENDING");
    expect(seen.at(-1)).toBe("SUCCEEDED 1 COMPLETED");
    await suspend(actor, "SYNC");
    expect(actor.record.lastOperation?.result).toBe("SUCCEEDED");
  });

  it("one that was released as soon as it was stored still succeeds", async () => {
    const actor = await granted();
    await actor.resume();
    const stop = node.actors.onChange((change) => {
      if ("actor" in change && storage(actor)[0] === "1 COMPLETED") {
        stop();
        void release(1);
      }
    });
    expect((await suspend(actor, "SYNC"))?.storage.state).toBe("COMPLETED");
  });

  it("what runs under an ended session is saved too when the node shuts down", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 77;
    node.session = "s2";
    await node.actors.endSession();
    node.stopping.abort();
    await node.actors.saveAll(new Promise(() => undefined));
    expect(storage(actor)).toEqual(["1 COMPLETED"]);
    await granted(2);
    await expect(actor.resume()).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
    expect(node.runtime.sandboxes.size).toBe(0);
  });

  it("a shutdown saves what was used last first, and says of each actor what the store did not take in time", async () => {
    const others = [randomUUID(), randomUUID()].map((uid) => ({ ...key, uid, name: uid }));
    const started: Actor[] = [];
    for (const [i, actorKey] of [key, ...others].entries()) {
      const given = assignment({ epoch: 1, session: node.session }, { actor: actorKey, program: program({}) });
      await node.actors.assign(given);
      const actor = node.actors.get(actorKey.uid);
      await actor.resume();
      actor.noteActivity(1000 + i);
      started.push(actor);
    }
    await rm(node.storeDir, { recursive: true, force: true });
    await writeFile(node.storeDir, "no folder any more");
    const late = Promise.withResolvers<undefined>();
    const saved = node.actors.saveAll(late.promise);
    await vi.waitFor(() => {
      expect(started.map(({ pendingGeneration }) => pendingGeneration)).toEqual([1, 1, 1]);
    });
    late.resolve(undefined);
    await saved;
    const lines = node.logged as { message: string; actor?: string; generation?: number }[];
    const unsaved = lines.filter(({ message }) => message.startsWith("not uploaded within the grace period"));
    expect(unsaved.map(({ actor, generation }) => [actor, generation])).toEqual(
      [...started].reverse().map(({ name }) => [name, 1]),
    );
    const order = lines.filter(({ message }) => message === "checkpoint timing").map(({ actor }) => actor);
    expect(order.at(0)).not.toBe(started.at(0)?.name);
    await rm(node.storeDir);
  });
});

describe("failures", () => {
  it("a failed checkpoint leaves the actor running, its processes moved back, no files and no loan", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.failNext.checkpoint = new SubstrateError("CHECKPOINT_FAILED", "disk full");
    await expect(suspend(actor)).rejects.toMatchObject({ code: "CHECKPOINT_FAILED" });
    expect(actor.state).toBe("RUNNING");
    expect(node.runtime.only().status).toBe("running");
    expect(node.network.blocked.size).toBe(0);
    expect(node.moves.at(-1)).toMatch(/^back/);
    expect(await readdir(actor.files.generations)).toEqual([]);
    expect(node.ledger.state().lentBytes).toBe(0);
    await suspend(actor);
  });

  it("a checkpoint that the sandbox does not survive: CRASHED, and the next resume uses the newest generation", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 3;
    await suspend(actor);
    await actor.resume();
    node.runtime.hold.checkpoint = Promise.resolve().then(() => {
      node.runtime.sandboxes.clear();
    });
    await expect(suspend(actor)).rejects.toBeInstanceOf(SubstrateError);
    node.runtime.hold = {};
    node.runtime.sandboxes.clear();
    await vi.waitFor(() => {
      expect(actor.state).toBe("CRASHED");
    });
    await actor.resume();
    expect(node.runtime.only().memory).toBe(3);
    expect(actor.record.crash).toBeUndefined();
  });

  it("a failed restore leaves the snapshot untouched and the place free, and backs off from the second time on", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor);
    for (let i = 0; i < 2; i++) {
      node.runtime.failNext.restore = new SubstrateError("RESTORE_FAILED", "no");
      await expect(actor.resume()).rejects.toMatchObject({ code: "RESTORE_FAILED" });
    }
    expect(actor.state).toBe("SUSPENDED");
    expect(node.ledger.state().bookedBytes).toBe(0);
    expect(node.network.used.size).toBe(0);
    await expect(actor.resume()).rejects.toHaveProperty("retryAfterMs");
    expect(node.routers.routes.get(key.uid)?.state).toBe("FAILING");
    await vi.waitFor(
      () => {
        expect(node.routers.routes.get(key.uid)?.state).toBe("ASLEEP");
      },
      { timeout: 20_000 },
    );
    await actor.resume();
  });

  it("a program that ends is CRASHED with its last output, and its place is freed", async () => {
    const actor = await granted();
    await actor.resume();
    await writeFile(actor.files.log, "panic: out of cheese\n");
    node.runtime.sandboxes.clear();
    await vi.waitFor(
      () => {
        expect(actor.state).toBe("CRASHED");
      },
      { timeout: 20_000 },
    );
    expect(actor.record.crash?.message).toContain("out of cheese");
    expect(node.ledger.state().bookedBytes).toBe(0);
  });

  it("a program that is killed at its memory limit: the message says so, and what it goes on from", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor);
    await writeFile(actor.files.log, "output of the first run\n");
    await actor.resume();
    node.limits.memory = true;
    node.runtime.sandboxes.clear();
    await vi.waitFor(
      () => {
        expect(actor.state).toBe("CRASHED");
      },
      { timeout: 20_000 },
    );
    expect(actor.record.crash?.message).toMatch(
      /more memory than its limit of 64\.0 MiB .*starts it from generation 1$/,
    );
  });

  it("a background load that fails after the first answer is a crash", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor);
    node.runtime.failNext.load = new SubstrateError("RESTORE_FAILED", "short read");
    await actor.resume();
    await vi.waitFor(() => {
      expect(actor.state).toBe("CRASHED");
    });
    expect(node.runtime.sandboxes.size).toBe(0);
  });

  it("no room: the wake fails with the shortfall, and nothing is booked", async () => {
    const big = node.ledger.adopt(2 ** 30 - 2 ** 20);
    const actor = await granted();
    await expect(actor.resume()).rejects.toMatchObject({ code: "NO_ROOM" });
    big.free();
    await actor.resume();
  });

  it("a store that is gone leaves the generation PENDING with the reason; it is stored when the store is back", async () => {
    const actor = await granted(1, { uploadDelayMs: 1 });
    await actor.resume();
    await rename(node.storeDir, `${node.storeDir}.away`);
    await suspend(actor);
    await vi.waitFor(() => {
      expect(actor.generations.newest()?.storage).toMatchObject({
        message: expect.stringContaining("upload to store default failed") as string,
        reason: "STORE_UNAVAILABLE",
      });
    });
    expect(storage(actor)).toEqual(["1 PENDING"]);
    await actor.resume();
    await rename(`${node.storeDir}.away`, node.storeDir);
    await vi.waitFor(
      () => {
        expect(storage(actor)).toEqual(["1 COMPLETED"]);
      },
      { timeout: 10_000 },
    );
  });
});

describe("rules of snapshot memory (writeback.md)", () => {
  it("R11, R21: neither a suspend nor a resume waits for an fsync", async () => {
    const actor = await granted();
    await actor.resume();
    const probe = await open(join(node.dir, "probe"), "w");
    const sync = vi.spyOn(Object.getPrototypeOf(probe) as typeof probe, "sync");
    await probe.close();
    await suspend(actor);
    await actor.resume();
    expect(sync).not.toHaveBeenCalled();
    await actor.hold(true);
    expect(sync).toHaveBeenCalled();
  });

  it("R16: a snapshot takes its slot before it borrows", async () => {
    const actor = await granted();
    await actor.resume();
    const gate = Promise.withResolvers<undefined>();
    const busy = [0, 1].map(() => node.snapshotSlots(() => gate.promise));
    const take = vi.spyOn(node.ledger, "borrow");
    const suspended = suspend(actor);
    await vi.waitFor(() => {
      expect(node.snapshotSlots.pendingCount).toBe(1);
    });
    expect(take).not.toHaveBeenCalled();
    gate.resolve(undefined);
    await Promise.all([...busy, suspended]);
    expect(take).toHaveBeenCalledOnce();
  });

  it("R6: what is lent is written through the page cache, and without a loan as its group says", async () => {
    const actor = await granted();
    await actor.resume();
    const checkpoint = vi.spyOn(node.runtime, "checkpoint");
    await suspend(actor);
    await actor.resume();
    const all = node.ledger.state();
    const taken = node.ledger.take(all.unbookedBytes, all.unbookedBytes);
    await suspend(actor);
    taken?.return();
    const how = checkpoint.mock.calls.map((call): unknown => call.at(2));
    expect(how).toEqual([{ direct: false }, { direct: true }]);
  });

  it("R9: what is followed has its final name, whatever was saved", async () => {
    const actor = await granted();
    const follow = vi.spyOn(node.context.writeBack, "follow");
    await actor.resume();
    await suspend(actor);
    await actor.resume();
    const how = { mode: "ASYNC", force: false, fidelity: "Rootfs" } as const;
    await actor.suspend({ operationId: randomUUID(), targetGeneration: target(actor), ...how });
    const paths = follow.mock.calls.map(([files]) => files);
    expect(paths).toEqual([
      [join(actor.generations.path(1), "pages.img")],
      [join(actor.generations.path(2), "rootfs.tar")],
    ]);
    await stat(paths[1]?.[0] ?? "");
    await vi.waitFor(() => {
      expect(node.ledger.state().lentBytes).toBe(0);
    });
  });

  it("R2: what an earlier atelet has lent for counts until it is on the disk", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor);
    let dirtyPages = 1000;
    const pageCache = {
      inspect: () => Promise.resolve({ cachedPages: 1000, dirtyPages, writebackPages: 0 }),
      writeOut: () => Promise.resolve(true),
      evict: () => Promise.resolve("not clean" as const),
    };
    const { log } = node.context;
    const nothing = () => undefined;
    const told = { flushed: nothing, evicted: nothing, gaveUp: nothing };
    const tight = () => Promise.resolve(false);
    const writeBack = new WriteBack({ cache: pageCache, tight, signal: new AbortController().signal, log, ...told });
    await node.restart({ pageCache, writeBack });
    expect(node.ledger.state().lentBytes).toBe(1000 * 4096);
    dirtyPages = 0;
    await vi.waitFor(() => {
      expect(node.ledger.state().lentBytes).toBe(0);
    });
  });

  it("R18: only an image of the actor's own may be dropped from memory once it is read", async () => {
    const actor = await granted();
    const dropped = vi.spyOn(node.context.writeBack, "dropIfTight");
    await actor.resume();
    await suspend(actor);
    await actor.resume();
    await vi.waitFor(() => {
      expect(dropped.mock.calls).toEqual([[join(actor.generations.path(1), "pages.img")]]);
    });
  });

  it("R17: the actor's processes are moved out before its image is written", async () => {
    const actor = await granted();
    await actor.resume();
    const write = node.runtime.checkpoint.bind(node.runtime);
    const moved: string[][] = [];
    vi.spyOn(node.runtime, "checkpoint").mockImplementation((...args) => {
      moved.push([...node.moves]);
      return write(...args);
    });
    await suspend(actor);
    expect(moved).toEqual([[`out ${actor.sandboxId}`]]);
  });

  it("R19, R20: a restore reads the generation where it is, and nothing of it goes while its memory is loading", async () => {
    const actor = await granted(1, { uploadDelayMs: 1 });
    await actor.resume();
    await suspend(actor);
    const restore = vi.spyOn(node.runtime, "restore");
    const load = Promise.withResolvers<undefined>();
    node.runtime.hold.load = load.promise.then(() => undefined);
    await actor.resume();
    const dir = actor.generations.path(1);
    expect(restore.mock.calls[0]?.[1].imageDir).toBe(dir);
    await vi.waitFor(
      () => {
        expect(storage(actor)).toEqual(["1 COMPLETED"]);
      },
      { timeout: 10_000 },
    );
    await actor.generations.evict(1);
    expect(await readdir(dir)).toEqual(["pages.img"]);
    load.resolve(undefined);
    await vi.waitFor(async () => {
      expect(await readdir(actor.files.generations)).toEqual([]);
    });
  });
});

describe("reading an image", () => {
  it("R27: reads as the page cache asks for", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor);
    vi.spyOn(node.context.imageReads, "direct").mockResolvedValue(true);
    const restore = vi.spyOn(node.runtime, "restore");
    await actor.resume();
    expect(restore.mock.calls[0]?.[1]).toMatchObject({ direct: true });
  });

  it("R18: the image may leave memory when all of it was read, and not before", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor);
    const load = Promise.withResolvers<undefined>();
    node.runtime.hold.load = load.promise.then(() => undefined);
    const dropped = vi.spyOn(node.context.writeBack, "dropIfTight");
    const wait = vi.spyOn(node.runtime, "waitRestored");
    await actor.resume();
    await vi.waitFor(() => {
      expect(wait).toHaveBeenCalled();
    });
    expect(dropped).not.toHaveBeenCalled();
    load.resolve(undefined);
    await vi.waitFor(() => {
      expect(dropped).toHaveBeenCalledOnce();
    });
  });
});

describe("which state is the newest (design.md §7)", () => {
  it("an epoch that follows the local one needs no store", async () => {
    const actor = await granted(1);
    await actor.resume();
    node.runtime.only().memory = 8;
    await suspend(actor);
    await rm(node.storeDir, { recursive: true, force: true });
    await chmod(node.dir, 0o700);
    await granted(2);
    await actor.resume();
    expect(node.runtime.only().memory).toBe(8);
    expect(actor.record.claim.state).toBe("none");
  });

  it("a jump in epochs claims the head; if nobody ran meanwhile the local state is still the newest", async () => {
    const actor = await granted(1);
    await actor.resume();
    node.runtime.only().memory = 8;
    await suspend(actor, "SYNC");
    await actor.resume();
    node.runtime.only().memory = 9;
    await suspend(actor);
    await granted(5);
    await actor.resume();
    expect(node.runtime.only().memory).toBe(9);
    expect(actor.record.claim.state).toBe("done");
  });

  it("another node ran under a higher epoch: what is only here is LOST, the head's state is restored", async () => {
    const actor = await granted(1);
    await actor.resume();
    node.runtime.only().memory = 1;
    await suspend(actor, "SYNC");
    await actor.resume();
    node.runtime.only().memory = 2;
    await suspend(actor);

    const other = await TestNode.create(node.storeDir);
    try {
      await other.actors.assign(assignment({ epoch: 2, session: "s1" }));
      const there = other.actors.get(key.uid);
      await there.resume();
      expect(other.runtime.only().memory).toBe(1);
      other.runtime.only().memory = 100;
      await suspend(there, "SYNC");
    } finally {
      await other.stop();
    }

    await granted(3 + 1);
    await actor.resume();
    expect(node.runtime.only().memory).toBe(100);
    // A fenced node can never replace the newer head either.
    await suspend(actor, "SYNC");
    expect(storage(actor)[0]).toMatch(/COMPLETED/);
  });

  it("a damaged local copy of a stored generation is fetched again; an unstored one is lost and said", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 6;
    await suspend(actor, "SYNC");
    await writeFile(join(actor.generations.path(1), "pages.img"), "damaged!");
    await actor.resume();
    expect(node.runtime.only().memory).toBe(6);
    node.runtime.only().memory = 7;
    await suspend(actor);
    await writeFile(join(actor.generations.path(2), "pages.img"), "damaged!");
    await actor.resume();
    expect(node.runtime.only().memory).toBe(6);
    expect(storage(actor)).toContain("2 LOST");
  });

  it("a local copy with other content than was stored is seen though its size is right, and the stored one is used", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 6;
    await suspend(actor, "SYNC");
    await writeFile(join(actor.generations.path(1), "pages.img"), "7");
    await actor.resume();
    expect(node.runtime.only().memory).toBe(6);
    expect(actor.generations.get(1)?.storage.message).toMatch(
      /^the copy on its node was damaged \(.*pages.img has other content .*\) and removed; the stored one is used$/,
    );
  });

  it("the only copy is used, and stays, when it can't be read whether it is damaged", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 6;
    await suspend(actor);
    await expect.poll(() => actor.generations.local(1)?.seal).toBeDefined();
    await utimes(join(actor.generations.path(1), "pages.img"), 1, 1);
    vi.spyOn(node.context.fileChecks, "verify").mockRejectedValueOnce(new Error("EMFILE: too many open files"));
    await actor.resume();
    expect(node.runtime.only().memory).toBe(6);
    expect(storage(actor)).toEqual(["1 PENDING"]);
  });

  it("after a restart of the machine a damaged copy goes before anybody wants it", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 6;
    await suspend(actor, "SYNC");
    const path = join(actor.files.generations, "1", "generation.json");
    const { seal } = JSON.parse(await readFile(path, "utf8")) as { seal: { boot: string } };
    await writeFile(path, (await readFile(path, "utf8")).replace(seal.boot, "an-earlier-one"));
    await writeFile(join(actor.generations.path(1), "pages.img"), "7");
    await node.restart();
    const after = node.actors.get(actor.record.actor.uid);
    await expect.poll(() => after.generations.local(1)).toBeUndefined();
    await granted(2);
    await after.resume();
    expect(node.runtime.only().memory).toBe(6);
  });

  it("a copy whose restore failed is read before the next try", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 6;
    await suspend(actor, "SYNC");
    // As after a rot of the disk: it looks as it did, and has other content than was stored.
    const rotten = [{ name: "pages.img", sha256: "0" }];
    await actor.generations.seal(1, await actor.generations.stamps(1), rotten);
    node.runtime.failNext.restore = new SubstrateError("RESTORE_FAILED", "bad page");
    await expect(actor.resume()).rejects.toThrow("bad page");
    await vi.waitFor(() => actor.resume(), { timeout: 10_000 });
    expect(node.runtime.only().memory).toBe(6);
    expect(actor.generations.get(1)?.storage.message).toContain("has other content than was written");
  });
});

describe("release and delete", () => {
  it("is refused while a sandbox or an unsaved generation exists; afterwards the store decides", async () => {
    const actor = await granted(1);
    await actor.resume();
    node.runtime.only().memory = 4;
    await expect(release(1)).rejects.toMatchObject({ code: "NOT_RELEASABLE" });
    await suspend(actor);
    await expect(release(1)).rejects.toMatchObject({ code: "NOT_RELEASABLE" });
    await suspend(actor, "SYNC");
    await release(1);
    expect(await readdir(join(node.dir, "actors"))).toEqual([]);
    expect(() => node.actors.get(key.uid)).toThrow(/released/);
    await (await granted(2)).resume();
    expect(node.runtime.only().memory).toBe(4);
  });

  it("deleting kills the sandbox and leaves nothing, on the node or in the store", async () => {
    const actor = await granted(1);
    await actor.resume();
    await suspend(actor, "SYNC");
    await actor.resume();
    await release(1, true);
    expect(node.runtime.sandboxes.size + node.network.used.size + node.ledger.state().bookedBytes).toBe(0);
    expect(await readdir(join(node.dir, "actors"))).toEqual([]);
    await vi.waitFor(async () => {
      expect((await node.storeKeys()).filter((k) => k.includes(key.uid))).toEqual([]);
    });
    await release(1, true);
  });

  it("deleting does not wait for a store that is away; what is there goes when it is back, after a restart too", async () => {
    const actor = await granted(1);
    await actor.resume();
    await suspend(actor, "SYNC");
    await rename(node.storeDir, `${node.storeDir}.away`);
    await release(1, true);
    expect(await readdir(join(node.dir, "tombstones"))).toEqual([`${key.uid}.json`]);
    await rename(`${node.storeDir}.away`, node.storeDir);
    expect((await node.storeKeys()).filter((k) => k.includes(key.uid))).not.toEqual([]);
    await node.restart();
    await vi.waitFor(async () => {
      expect((await node.storeKeys()).filter((k) => k.includes(key.uid))).toEqual([]);
      expect(await readdir(join(node.dir, "tombstones"))).toEqual([]);
    });
  });

  it("deleting in the middle of a resume waits for nothing", async () => {
    const actor = await granted(1);
    await actor.resume();
    await suspend(actor);
    const gate = Promise.withResolvers<undefined>();
    node.runtime.hold.restore = gate.promise.then(() => undefined);
    const resumed = actor.resume().catch((error: unknown) => error);
    await vi.waitFor(() => {
      expect(actor.state).toBe("RESUMING");
    });
    const released = release(1, true);
    gate.resolve(undefined);
    await Promise.all([resumed, released]);
    expect(node.runtime.sandboxes.size).toBe(0);
  });
});

describe("kill -9 of the atelet", () => {
  it("while it runs: the sandbox is adopted and goes on", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 9;
    await node.restart();
    expect(node.actors.get(key.uid).state).toBe("RUNNING");
    expect(node.runtime.starts).toBe(1);
    expect(node.ledger.state().bookedBytes).toBeGreaterThan(0);
    await suspend(node.actors.get(key.uid));
    await node.actors.get(key.uid).resume();
    expect(node.runtime.only().memory).toBe(9);
  });

  it("a record of an atelet that knew only sandboxes of the actor's own id is adopted", async () => {
    const actor = await granted();
    await actor.resume();
    const path = join(actor.files.dir, "record.json");
    const record = JSON.parse(await readFile(path, "utf8")) as { sandbox: { sandboxId?: string } };
    delete record.sandbox.sandboxId;
    await writeFile(path, JSON.stringify(record));
    await node.restart();
    expect(node.actors.get(key.uid).state).toBe("RUNNING");
    expect(node.runtime.starts).toBe(1);
  });

  it("in the middle of a checkpoint: the sandbox goes on, the half image is gone", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.hold.checkpoint = new Promise(() => undefined);
    void suspend(actor).catch(() => undefined);
    await vi.waitFor(async () => {
      expect(await readdir(actor.files.generations)).toEqual(["1.partial"]);
    });
    node.runtime.hold = {};
    await node.restart();
    expect(node.actors.get(key.uid).state).toBe("RUNNING");
    expect(node.runtime.only().status).toBe("running");
    expect(await readdir(actor.files.generations)).toEqual([]);
  });

  it("between the rename and the end of the sandbox: the suspend is finished, nothing is lost", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 12;
    vi.spyOn(node.runtime, "delete").mockImplementationOnce(() => new Promise(() => undefined));
    void suspend(actor).catch(() => undefined);
    await vi.waitFor(async () => {
      expect(await readdir(actor.files.generations)).toEqual(["1"]);
    });
    vi.restoreAllMocks();
    await node.restart();
    const again = node.actors.get(key.uid);
    expect(again.state).toBe("SUSPENDED");
    expect(storage(again)).toEqual(["1 PENDING"]);
    expect(node.runtime.sandboxes.size + node.network.used.size).toBe(0);
    await again.resume();
    expect(node.runtime.only().memory).toBe(12);
  });

  it("in the middle of a restore: what was half started is removed, the next wake restores", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor);
    node.runtime.hold.restore = new Promise(() => undefined);
    const restore = vi.spyOn(node.runtime, "restore");
    void actor.resume().catch(() => undefined);
    await vi.waitFor(() => {
      expect(restore).toHaveBeenCalled();
    });
    node.runtime.hold = {};
    await node.restart();
    expect(node.actors.get(key.uid).state).toBe("SUSPENDED");
    expect(node.network.used.size).toBe(0);
    await node.actors.get(key.uid).resume();
  });

  it("a sandbox whose network is gone is removed, and hinders nobody's adoption", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor);
    await actor.resume();
    node.network.used.clear();
    await node.restart();
    const again = node.actors.get(key.uid);
    expect(again.state).toBe("CRASHED");
    expect(node.runtime.sandboxes.size + node.ledger.state().bookedBytes).toBe(0);
    await again.resume();
  });

  it("a record that is damaged is set aside; the others come back, this one from the store", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 31;
    await suspend(actor, "SYNC");
    const path = join(actor.files.dir, "record.json");
    // the last that is written of a suspend
    await vi.waitFor(async () => {
      expect(await readFile(path, "utf8")).toContain('"packsToCollect": false');
    });
    await writeFile(path, "{ torn");
    await node.restart();
    expect(node.actors.all()).toEqual([]);
    expect((await readdir(actor.files.dir)).filter((name) => name.startsWith("record.damaged."))).toHaveLength(1);
    await (await granted(2)).resume();
    expect(node.runtime.only().memory).toBe(31);
  });

  it("together with the machine: neither sandbox nor network is there, the actor still is", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.sandboxes.clear();
    node.network.used.clear();
    await node.restart();
    expect(node.actors.get(key.uid).state).toBe("CRASHED");
  });

  it("together with the sandbox: CRASHED at the newest generation", async () => {
    const actor = await granted();
    await actor.resume();
    await suspend(actor);
    await actor.resume();
    node.runtime.sandboxes.clear();
    await node.restart();
    expect(node.actors.get(key.uid).state).toBe("CRASHED");
    await node.actors.get(key.uid).resume();
  });

  it("with the session: what sleeps is granted anew at its next wake, without the store", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.only().memory = 2;
    await suspend(actor);
    node.session = "s2";
    await node.restart();
    await expect(node.actors.get(key.uid).resume()).rejects.toMatchObject({ code: "STALE_SESSION" });
    await granted(2);
    await node.actors.get(key.uid).resume();
    expect(node.runtime.only().memory).toBe(2);
  });

  it("before an upload: it is taken up again", async () => {
    const actor = await granted(1, { uploadDelayMs: 50 });
    await actor.resume();
    await suspend(actor);
    await node.restart();
    await vi.waitFor(
      () => {
        expect(storage(node.actors.get(key.uid))).toEqual(["1 COMPLETED"]);
      },
      { timeout: 20_000 },
    );
  });
});

it("a wake waits for the operator while an upgrade is pending; the operator's own resume doesn't", async () => {
  const actor = await granted();
  await node.actors.assign(assignment(actor.record.grant, { upgradePending: true }));
  await node.restart();
  const again = node.actors.get(key.uid);
  await expect(again.wake()).rejects.toMatchObject({ code: "MOVED" });
  await again.resume();
  await again.wake();
  expect(node.runtime.starts).toBe(1);
});
