import { randomUUID } from "node:crypto";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type Actor } from "./actor.ts";
import { evictableCopies, hurryUploads } from "./evictable.ts";
import { removablesOf } from "./removables.ts";
import { assignment, key, program, TestNode } from "./test-node.ts";

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(() => node.stop());

const bytesBelow = (): Promise<number> => Promise.resolve(1);
const copies = () => evictableCopies(node.actors.all(), bytesBelow);

async function asleep(memory: number, actorKey = key): Promise<Actor> {
  const grant = { session: "s1", epoch: 1 };
  const late = { program: program({ uploadDelayMs: 3_600_000, uploadWithinMs: 3_600_000 }), actor: actorKey };
  await node.actors.assign(assignment(grant, late));
  const actor = node.actors.get(actorKey.uid);
  await actor.resume();
  node.runtime.only().memory = memory;
  await suspend(actor);
  return actor;
}

async function suspend(actor: Actor): Promise<void> {
  const targetGeneration = (actor.generations.newest()?.generation ?? 0) + 1;
  await actor.suspend({ operationId: `o${targetGeneration}`, mode: "ASYNC", force: false, targetGeneration });
}

it("a copy goes once it is in the store, and the next start has it from there", async () => {
  const actor = await asleep(7);
  expect(copies()).toEqual([]);
  // nobody else would store it within the hour
  expect(hurryUploads(node.actors.all())).toBe(1);
  await expect.poll(copies, { timeout: 10_000 }).toHaveLength(1);
  expect(hurryUploads(node.actors.all())).toBe(0);
  const [copy] = copies();
  expect(await copy?.remove()).toBe(true);
  expect(await copy?.remove()).toBe(false);
  expect(actor.generations.local(1)).toBeUndefined();
  await actor.resume();
  expect(node.runtime.only().memory).toBe(7);
});

it("what is being loaded stays until the load has ended", async () => {
  const actor = await asleep(7);
  hurryUploads(node.actors.all());
  await expect.poll(copies, { timeout: 10_000 }).toHaveLength(1);
  const before = copies();
  const load = Promise.withResolvers<undefined>();
  node.runtime.hold.load = load.promise;
  await actor.resume();
  expect(copies()).toEqual([]);
  expect(await before[0]?.remove()).toBe(false);
  load.resolve(undefined);
  await expect.poll(copies, { timeout: 10_000 }).toHaveLength(1);
  // a running actor's goes first
  expect(actor.state).toBe("RUNNING");
  expect(await copies()[0]?.remove()).toBe(true);
  await suspend(actor);
  expect(actor.generations.newest()?.generation).toBe(2);
});

it("R24: copies of running actors go before those of sleeping ones, the oldest first; all after what is unused", async () => {
  const actors: Actor[] = [];
  for (const name of ["middle", "oldest", "newest", "runs"]) {
    const actor = await asleep(1, { ...key, uid: randomUUID(), name });
    const createdAtMs = { middle: 2, oldest: 1, newest: 3, runs: 4 }[name] ?? 0;
    for (const generation of actor.record.generations) generation.createdAtMs = createdAtMs;
    actors.push(actor);
  }
  await actors.at(-1)?.resume();
  hurryUploads(actors);
  await expect.poll(copies, { timeout: 10_000 }).toHaveLength(4);
  const unused = (kind: "origin" | "image", ms: number) => ({
    kind,
    name: `${kind} unused for ${ms / 60_000} min`,
    bytes: () => Promise.resolve(1),
    remove: () => Promise.resolve(true),
  });
  const inUse: boolean[] = [];
  const all = removablesOf({
    actors,
    origins: { removables: (ms) => [unused("origin", ms)], imageDigests: () => ["sha256:origin"] },
    images: {
      removables: (isInUse, ms) => {
        const images = ["sha256:1", "sha256:origin", "sha256:warm", "sha256:2"];
        inUse.push(...images.map((digest) => isInUse({ digest, dir: `/images/${digest}` })));
        return [unused("image", ms)];
      },
    },
    warmRootfs: ["/images/sha256:warm/rootfs"],
    bytesBelow,
  });
  expect(all.map(({ name }) => name)).toEqual([
    "origin unused for 10 min",
    "image unused for 30 min",
    ...["runs", "oldest", "middle", "newest"].map((name) => `generation 1 of default/${name}`),
    "origin unused for 0 min",
  ]);
  expect(inUse).toEqual([true, true, true, false]);
});

it("a suspend that has no room leaves the actor running, and goes well when there is", async () => {
  const actor = await asleep(7);
  await actor.resume();
  node.disk.full = new SubstrateError("NO_ROOM", "node n: the disk is full");
  await expect(suspend(actor)).rejects.toMatchObject({ code: "NO_ROOM" });
  expect(actor.state).toBe("RUNNING");
  expect(node.runtime.only().status).toBe("running");
  node.disk.full = undefined;
  await suspend(actor);
  expect(actor.state).toBe("SUSPENDED");
  expect(node.disk.claimed).toContain("a snapshot of actor default/a");
});
