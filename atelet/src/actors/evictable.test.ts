import { SubstrateError } from "@substrate/lib/errors.ts";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { type Actor } from "./actor.ts";
import { evictableCopies, hurryUploads } from "./evictable.ts";
import { assignment, key, program, TestNode } from "./test-node.ts";

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(() => node.stop());

const bytesBelow = (): Promise<number> => Promise.resolve(1);
const copies = () => evictableCopies(node.actors.all(), bytesBelow);

async function asleep(memory: number): Promise<Actor> {
  const grant = { session: "s1", epoch: 1 };
  await node.actors.assign(
    assignment(grant, { program: program({ uploadDelayMs: 3_600_000, uploadWithinMs: 3_600_000 }) }),
  );
  const actor = node.actors.get(key.uid);
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
  await vi.waitFor(() => {
    expect(copies()).toHaveLength(1);
  });
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
  await vi.waitFor(() => {
    expect(copies()).toHaveLength(1);
  });
  const before = copies();
  const load = Promise.withResolvers<undefined>();
  node.runtime.hold.load = load.promise;
  await actor.resume();
  expect(copies()).toEqual([]);
  expect(await before[0]?.remove()).toBe(false);
  load.resolve(undefined);
  await vi.waitFor(() => {
    expect(copies()).toHaveLength(1);
  });
  // a running actor's goes first
  expect(actor.state).toBe("RUNNING");
  expect(await copies()[0]?.remove()).toBe(true);
  await suspend(actor);
  expect(actor.generations.newest()?.generation).toBe(2);
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
