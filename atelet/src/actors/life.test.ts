import { randomUUID } from "node:crypto";
import { readFile, readdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Actor } from "./actor.ts";
import { type Program } from "./record.ts";
import { type StartFrom } from "./start-from.ts";
import { assignment, clusterUid, key, program, TestNode } from "./test-node.ts";

const monotonicMs = performance.now.bind(performance);
let passedMs = 0;
let node: TestNode;
beforeEach(async () => {
  vi.useFakeTimers({ toFake: ["Date"] });
  vi.spyOn(performance, "now").mockImplementation(() => monotonicMs() + passedMs);
  node = await TestNode.create();
});
afterEach(async () => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  await node.stop();
});

async function granted(epoch = 1, changes: Partial<Program> = {}): Promise<Actor> {
  await node.actors.assign(assignment({ epoch, session: node.session }, { program: program(changes) }));
  return node.actors.get(key.uid);
}
const suspend = (actor: Actor, mode: "ASYNC" | "SYNC" = "ASYNC") =>
  actor.suspend({
    operationId: randomUUID(),
    mode,
    force: false,
    targetGeneration: (actor.generations.newest()?.generation ?? 0) + 1,
  });
const storage = (actor: Actor): string[] =>
  actor.generations.all().map(({ generation, storage }) => `${generation} ${storage.state}`);
const release = (epoch: number) => node.actors.release(key, epoch, { deleting: false, clusterUid });
const from = (choice: StartFrom) => ({ from: choice });
const boot: StartFrom = { kind: "boot" };
const generation = (number: number): StartFrom => ({ kind: "generation", generation: number });

/** Sleeps at generations 1 to n; the program's memory held that number at each. */
async function savedTimes(n: number, mode: "ASYNC" | "SYNC" = "SYNC", changes: Partial<Program> = {}): Promise<Actor> {
  const actor = await granted(1, { history: 10, ...changes });
  for (let count = 1; count <= n; count += 1) {
    await actor.resume();
    node.runtime.only().memory = count;
    await suspend(actor, mode);
  }
  return actor;
}

/** The pause after a failure passes. */
function later(ms = 5000): void {
  vi.setSystemTime(Date.now() + ms);
  passedMs += ms;
}

async function crashAtOnce(actor: Actor, code = 3): Promise<void> {
  later();
  await actor.resume();
  node.runtime.end({ code });
  await actor.checkAlive();
}

describe("how a program ended is said", () => {
  it.each([
    [{ code: 3 }, "its program exited with code 3"],
    [{ code: 139 }, "its program was killed by signal 11 (SIGSEGV)"],
    [{ code: 128 }, "its sandbox failed (exit code 128 of runsc)"],
    [{ signal: 9 }, "its sandbox was killed by signal 9 (SIGKILL)"],
  ])("%j", async (status, message) => {
    const actor = await granted();
    await actor.resume();
    node.runtime.end(status);
    await actor.checkAlive();
    expect(actor.state).toBe("CRASHED");
    expect(actor.record.crash?.message).toContain(message);
  });

  it("the kernel's limits come before the exit code that they caused", async () => {
    const actor = await granted();
    await actor.resume();
    node.limits.processes = 4096;
    node.runtime.end({ code: 2 });
    await actor.checkAlive();
    expect(actor.record.crash?.message).toContain(
      "its program exited with code 2, after it had been refused more processes and threads than a sandbox may have (4096)",
    );
  });

  it("one that ends before it is ready: the failed start says how, too", async () => {
    // Nothing listens on this port: what is waited for is the program's end.
    const actor = await granted(1, { readyz: { path: "/readyz", port: 1 } });
    const starting = actor.resume();
    await vi.waitFor(() => {
      node.runtime.end({ code: 3 });
    });
    await expect(starting).rejects.toMatchObject({
      code: "PROGRAM_EXITED",
      message: "actor default/a ended before it was ready: its program exited with code 3",
    });
    expect(actor.record.shortLives).toMatchObject({ generation: 0, count: 1 });
  });

  it("a sandbox at its limit of processes stands still: it is stopped, and said why", async () => {
    const actor = await granted();
    await actor.resume();
    node.limits.processes = 4096;
    await actor.checkAlive();
    expect(actor.record.crash?.message).toMatch(/^it was stopped, after it had been refused more processes .*4096/);
    expect(node.runtime.sandboxes.size).toBe(0);
  });

  it("out of memory by a crowd: how many there were", async () => {
    const actor = await granted();
    await actor.resume();
    Object.assign(node.limits, { memory: true, mostProcesses: 740 });
    node.runtime.end({ signal: 9 });
    await actor.checkAlive();
    expect(actor.record.crash?.message).toContain(
      "limit of 64.0 MiB and was killed while it had 740 processes and threads",
    );
  });
});

describe("crash loop", () => {
  it("three short lives from one source: nothing starts it any more, routers hear why, without a time to try again", async () => {
    const actor = await savedTimes(1);
    for (let life = 1; life <= 3; life += 1) await crashAtOnce(actor);
    const failure = { code: "CRASH_LOOP", retryAfterMs: undefined };
    await expect(actor.wake()).rejects.toMatchObject(failure);
    await expect(actor.resume()).rejects.toThrow(
      /ended 3 times in a row within a minute of its start from generation 1.*code 3.*--from N.*--boot/,
    );
    expect(node.routers.routes.get(key.uid)).toMatchObject({ state: "FAILING", retryAfterMs: 0 });
    expect(actor.state).toBe("CRASHED");
    await node.restart();
    const again = node.actors.get(key.uid);
    await expect(again.resume()).rejects.toMatchObject(failure);
    expect(again.record.crashLoop).toMatchObject({ generation: 1 });
  });

  it("a suspend that has nothing to do changes nothing of it", async () => {
    const actor = await savedTimes(1);
    for (let life = 1; life <= 3; life += 1) await crashAtOnce(actor);
    await suspend(actor);
    expect(actor.state).toBe("CRASHED");
    await expect(actor.resume()).rejects.toMatchObject({ code: "CRASH_LOOP" });
  });

  it("failed restores count like crashes; no room doesn't", async () => {
    const actor = await savedTimes(1);
    for (let life = 1; life <= 3; life += 1) {
      node.runtime.failNext.restore = new SubstrateError("RESTORE_FAILED", "broken");
      later();
      await expect(actor.resume()).rejects.toThrow("broken");
      expect(actor.record.shortLives?.count).toBe(life);
    }
    await expect(actor.resume()).rejects.toMatchObject({ code: "CRASH_LOOP" });

    const other = await granted(2, { revision: "r2", memoryBytes: 2 ** 31 });
    await expect(other.resume(from(boot))).rejects.toMatchObject({ code: "NO_ROOM" });
    expect(other.record.shortLives).toBeUndefined();
  });

  it("a life of more than a minute, or one that ended asleep, breaks the row", async () => {
    const actor = await savedTimes(1);
    await crashAtOnce(actor);
    await crashAtOnce(actor);
    later();
    await actor.resume();
    later(61_000);
    node.runtime.end({ code: 3 });
    await actor.checkAlive();
    expect(actor.record.shortLives ?? actor.record.crashLoop).toBeUndefined();

    await crashAtOnce(actor);
    later();
    await actor.resume();
    await suspend(actor);
    expect(actor.record.shortLives).toBeUndefined();
  });

  it("another revision ends it; the same one again doesn't", async () => {
    const actor = await granted();
    for (let life = 1; life <= 3; life += 1) await crashAtOnce(actor);
    await granted(2);
    await expect(actor.resume()).rejects.toMatchObject({ code: "CRASH_LOOP" });
    await granted(3, { revision: "r2" });
    await actor.resume();
    expect(actor.state).toBe("RUNNING");
  });

  it("one that ended while there was no atelet is said and counted all the same", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.end({ code: 3 });
    await node.restart();
    const { record } = node.actors.get(key.uid);
    expect(record.crash?.message).toContain("its program exited with code 3");
    expect(record.shortLives).toMatchObject({ generation: 0, count: 1 });
  });

  it("lives that its node ended are not the program's fault", async () => {
    const actor = await granted();
    await actor.resume();
    node.runtime.sandboxes.clear();
    await node.restart();
    const again = node.actors.get(key.uid);
    expect(again.state).toBe("CRASHED");
    expect(again.record.shortLives).toBeUndefined();
    expect(actor.record.actor).toEqual(again.record.actor);
  });

  it("a choice ends it, also one that fails: its failure is the first of a new row", async () => {
    const actor = await savedTimes(2);
    for (let life = 1; life <= 3; life += 1) await crashAtOnce(actor);
    node.runtime.failNext.restore = new SubstrateError("RESTORE_FAILED", "broken");
    await expect(actor.resume(from(generation(1)))).rejects.toThrow("broken");
    expect(actor.record.crashLoop).toBeUndefined();
    expect(actor.record).toMatchObject({ floor: 0, shortLives: { generation: 1, count: 1 } });
    expect(storage(actor)).toEqual(["2 COMPLETED", "1 COMPLETED"]);
    await actor.resume(from(generation(1)));
    expect(node.runtime.only().memory).toBe(1);
  });
});

describe("start from", () => {
  it("a generation: newer ones are given up, also in the store, and their numbers are not used again", async () => {
    const actor = await savedTimes(3);
    await actor.resume(from(generation(1)));
    expect(node.runtime.only().memory).toBe(1);
    expect(storage(actor)).toEqual(["3 LOST", "2 LOST", "1 COMPLETED"]);
    expect(actor.generations.all()[0]?.storage.message).toBe("given up: a person went back to generation 1");
    expect(actor.record.floor).toBe(0);
    expect(actor.record.rewind).toBeUndefined();
    const head = await readFile(join(node.storeDir, clusterUid, "n", key.uid, "head.json"), "utf8");
    expect(JSON.parse(head)).toMatchObject({ generation: 1 });
    await suspend(actor, "SYNC");
    expect(storage(actor)[0]).toBe("4 COMPLETED");
    await actor.resume();
    expect(node.runtime.only().memory).toBe(1);
  });

  it("after it a crash goes on from that generation, over a restart too", async () => {
    const actor = await savedTimes(3);
    await actor.resume(from(generation(2)));
    node.runtime.end({ code: 1 });
    await node.restart();
    const again = node.actors.get(key.uid);
    expect(again.record.floor).toBe(1);
    await again.resume();
    expect(node.runtime.only().memory).toBe(2);
  });

  it("one that is not here is fetched", async () => {
    const actor = await savedTimes(2);
    await actor.generations.evict(1);
    await actor.resume(from(generation(1)));
    expect(node.runtime.only().memory).toBe(1);
  });

  it("one that isn't there: INVALID with what there is", async () => {
    const actor = await savedTimes(2);
    await expect(actor.resume(from(generation(7)))).rejects.toThrow(
      "no generation 7 that can be restored; there is 2, 1",
    );
    expect(actor.state).toBe("SUSPENDED");
  });

  it("one that a newer stored one has overtaken before it was stored itself: refused, as a move would undo it", async () => {
    const actor = await savedTimes(1, "ASYNC");
    const [first] = actor.record.generations;
    if (first === undefined) throw new Error("no generation 1");
    const stored = { ...first.storage, state: "COMPLETED" as const, manifest: "2-1/manifest.json" };
    actor.record.generations = [{ ...first, generation: 2, storage: stored }, first];
    await expect(actor.resume(from(generation(1)))).rejects.toThrow("it is not in the store, and generation 2 is");
  });

  it("with the store away it starts all the same; the head is put back before it may leave the node", async () => {
    const actor = await savedTimes(2);
    const restore = Promise.withResolvers<undefined>();
    node.runtime.hold.restore = restore.promise.then(() => rename(node.storeDir, `${node.storeDir}.away`));
    const starting = actor.resume(from(generation(1)));
    await vi.waitFor(() => {
      expect(actor.generations.local(1)).toBeDefined();
    });
    restore.resolve(undefined);
    await starting;
    expect(actor.record.rewind).toEqual({ generation: 1, manifest: "1-1/manifest.json" });
    node.runtime.end({ code: 1 });
    await actor.checkAlive();
    await expect(release(1)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await rename(`${node.storeDir}.away`, node.storeDir);
    await release(1);
    const back = await granted(2);
    await back.resume();
    expect(node.runtime.only().memory).toBe(1);
  });

  it("boot: a cold start; what was before is history, and no crash brings it back", async () => {
    const actor = await savedTimes(2);
    await actor.resume(from(boot));
    expect(node.runtime.only().memory).toBe(0);
    expect(actor.record.floor).toBe(2);
    expect(storage(actor)).toEqual(["2 COMPLETED", "1 COMPLETED"]);
    node.runtime.end({ code: 1 });
    await actor.checkAlive();
    expect(actor.record.crash?.message).toMatch(/the next resume starts it anew$/);
    await expect(release(1)).rejects.toThrow(
      "it was started anew after generation 2, and nothing of it was saved since",
    );
    await actor.resume();
    expect(node.runtime.only().memory).toBe(0);
    node.runtime.only().memory = 9;
    await suspend(actor, "SYNC");
    expect(storage(actor)[0]).toBe("3 COMPLETED");
    await actor.resume();
    expect(node.runtime.only().memory).toBe(9);
  });

  it("after a boot a person can go back behind it", async () => {
    const actor = await savedTimes(2);
    await actor.resume(from(boot));
    node.runtime.end({ code: 1 });
    await actor.checkAlive();
    await actor.resume(from(generation(2)));
    expect(node.runtime.only().memory).toBe(2);
    expect(actor.record.floor).toBe(1);
  });

  it("while it runs: suspend it first; the same call again is the same operation", async () => {
    const actor = await savedTimes(2);
    const request = { operationId: "one", ...from(generation(1)) };
    const starting = actor.resume(request);
    await expect(actor.resume(from(boot))).rejects.toMatchObject({ code: "OPERATION_IN_PROGRESS" });
    await actor.resume(request);
    await starting;
    await actor.resume(request);
    await expect(actor.resume(from(boot))).rejects.toThrow("is running: suspend it first");
    expect(node.runtime.only().memory).toBe(1);
  });

  it("a choice that came to pass and is asked for again, long after: nothing saved since is given up", async () => {
    const actor = await savedTimes(2);
    const request = { operationId: "one", ...from(generation(1)) };
    await actor.resume(request);
    node.runtime.only().memory = 9;
    await suspend(actor);
    await actor.resume(request);
    expect(node.runtime.only().memory).toBe(9);
  });

  it("kill -9 after the start and before it was recorded: as if it had never been asked", async () => {
    // nothing is uploaded: what that records later would take the place of the record as it was
    const actor = await savedTimes(2, "ASYNC");
    const path = join(node.dir, "actors", key.uid, "record.json");
    const before = await readFile(path, "utf8");
    await actor.resume(from(boot));
    await writeFile(path, before);
    await node.restart();
    const again = node.actors.get(key.uid);
    expect(node.runtime.sandboxes.size).toBe(0);
    expect(again.record.floor).toBe(0);
    await again.resume();
    expect(node.runtime.only().memory).toBe(2);
  });

  it("a start that cannot be recorded gives nothing up", async () => {
    const actor = await savedTimes(2);
    const { files } = actor;
    const save = vi
      .spyOn(files, "save")
      .mockImplementation((record) =>
        record.sandbox === undefined ? Promise.resolve() : Promise.reject(new Error("disk full")),
      );
    await expect(actor.resume(from(generation(1)))).rejects.toMatchObject({ code: "NO_ROOM" });
    save.mockRestore();
    expect(storage(actor)).toEqual(["2 COMPLETED", "1 COMPLETED"]);
    expect(actor.record.floor).toBe(0);
    expect(actor.record.rewind).toBeUndefined();
    await actor.resume();
    expect(node.runtime.only().memory).toBe(2);
  });

  it("an upload under way of what is given up does not bring it back", async () => {
    const actor = await savedTimes(1);
    await actor.resume();
    node.runtime.only().memory = 2;
    await suspend(actor);
    const flushing = suspend(actor, "SYNC").catch(() => undefined);
    await actor.resume(from(generation(1)));
    await flushing;
    expect(storage(actor)).toEqual(["2 LOST", "1 COMPLETED"]);
    const head = await readFile(join(node.storeDir, clusterUid, "n", key.uid, "head.json"), "utf8");
    expect(JSON.parse(head)).toMatchObject({ generation: 1 });
  });

  it("a memory image goes on only under its own revision; --boot starts the other one cold", async () => {
    const actor = await savedTimes(1);
    await granted(2, { revision: "r2" });
    await expect(actor.resume()).rejects.toThrow(/generation 1 .* memory of revision r1 .* revision r2.*--boot/);
    await actor.resume(from(boot));
    expect(node.runtime.only().memory).toBe(0);
  });
});

describe("past operations", () => {
  it("the last 16 with their phases, newest first; a sync one has its upload among them", async () => {
    const actor = await granted();
    for (let count = 0; count < 9; count += 1) {
      await actor.resume();
      await suspend(actor, count === 8 ? "SYNC" : "ASYNC");
    }
    const { operations } = actor.record;
    expect(operations.length).toBe(16);
    expect(operations.slice(0, 2).map(({ type, result }) => `${type} ${result}`)).toEqual([
      "SUSPEND SUCCEEDED",
      "RESUME SUCCEEDED",
    ]);
    expect(operations[0]?.phases.map(({ name }) => name)).toEqual(
      expect.arrayContaining(["drain", "checkpoint", "teardown", "upload"]),
    );
    expect(operations[1]?.phases.map(({ name }) => name)).toEqual(
      expect.arrayContaining(["place", "restore", "ready"]),
    );
  });

  it("one that an atelet's end cut short is among them", async () => {
    const actor = await granted();
    node.runtime.hold.checkpoint = new Promise(() => undefined);
    await actor.resume();
    void suspend(actor);
    await vi.waitFor(async () => {
      expect(await readdir(join(actor.files.generations, "1.partial", "image"))).toEqual(["pages.img"]);
    });
    await actor.files.save(actor.record, { durable: false });
    delete node.runtime.hold.checkpoint;
    await node.restart();
    expect(node.actors.get(key.uid).record.operations[0]).toMatchObject({ type: "SUSPEND", reason: "SHUTTING_DOWN" });
  });
});

describe("environment", () => {
  const canary = "canary-5f1c7e";
  const environment = (value: string) => ({
    variables: [{ name: "TOKEN", value }],
    digest: `digest of ${value.length}`,
  });
  const withEnvironment = (epoch: number, value: string) =>
    node.actors.assign(assignment({ epoch, session: node.session }, { environment: environment(value) }));

  it("reaches the program at a cold start only, which it has when restored, too: what is run beside it had none", async () => {
    await withEnvironment(1, "one");
    const actor = node.actors.get(key.uid);
    expect(actor.record.envDigest).toBe("");
    await actor.resume();
    expect(node.runtime.only().spec.env).toEqual(["TOKEN=one"]);
    expect(actor.record.envDigest).toBe("digest of 3");
    await suspend(actor);
    await withEnvironment(2, "three");
    await actor.resume();
    // not the newer one, of which the program in its memory knows nothing
    expect(node.runtime.only().spec.env).toEqual(["TOKEN=one"]);
    expect(actor.record.envDigest).toBe("digest of 3");
    await suspend(actor, "SYNC");
    await actor.resume(from(boot));
    expect(node.runtime.only().spec.env).toEqual(["TOKEN=three"]);
    expect(actor.record.envDigest).toBe("digest of 5");
  });

  it("one that an assignment leaves out stays, over a restart too; an empty one takes it away", async () => {
    await withEnvironment(1, "one");
    await granted(2);
    await node.restart();
    const actor = node.actors.get(key.uid);
    await actor.resume();
    expect(node.runtime.only().spec.env).toEqual(["TOKEN=one"]);
    await node.actors.assign(
      assignment({ epoch: 3, session: node.session }, { environment: { variables: [], digest: "" } }),
    );
    await suspend(actor);
    await actor.resume(from(boot));
    expect(node.runtime.only().spec.env).toEqual([]);
  });

  it("the digest moves with the state: a node that fetches it knows it", async () => {
    await withEnvironment(1, "one");
    const actor = node.actors.get(key.uid);
    await actor.resume();
    await suspend(actor, "SYNC");
    await release(1);
    const back = await granted(2);
    await back.resume();
    expect(back.record.envDigest).toBe("digest of 3");
  });

  it("no value of it is in a record, a log, an error, the store, or a message", async () => {
    await withEnvironment(1, canary);
    const actor = node.actors.get(key.uid);
    await actor.resume();
    await suspend(actor, "SYNC");
    await actor.resume();
    node.runtime.end({ code: 3 });
    await actor.checkAlive();
    // Damaged in the middle: what JSON.parse says of it quotes it.
    await writeFile(actor.files.environment, `{"variables":[{"name":"TOKEN","value":"${canary}"`);
    await node.restart();
    const again = node.actors.get(key.uid);
    const failure: unknown = await again.resume(from(boot)).catch((error: unknown) => error);
    expect(failure).toMatchObject({ message: expect.stringContaining("environment.json is damaged") as string });
    const said = [failure, (failure as Error).cause, again.route(), node.logged].map((thing) => inspect(thing));
    expect(said.join("\n")).not.toContain(canary);
    expect(node.logged.length).toBeGreaterThan(0);
    await rm(actor.files.environment);
    await rm(actor.files.environment.replace(".json", ".begun.json"));
    for (const path of await filesBelow(node.dir)) {
      expect(await readFile(path, "utf8"), path).not.toContain(canary);
    }
  });
});

async function filesBelow(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
}
