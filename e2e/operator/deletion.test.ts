import { afterAll, beforeAll, expect, it } from "vitest";
import { actors, snapshots, templates } from "@substrate/crds/index.ts";
import { namespaces } from "@substrate/lib/kube/types.ts";
import { eventually } from "../support/poll.ts";
import { condition, Fixture } from "./fixture.ts";

let fixture: Fixture;
beforeAll(async () => {
  fixture = await Fixture.start({ controllers: true });
  await fixture.template("app");
});
afterAll(async () => {
  await fixture.stop();
});

async function gone(name: string): Promise<void> {
  await eventually(
    async () => {
      const actor = await fixture.client.get(actors, name, "test");
      if (actor !== undefined) throw new Error(JSON.stringify(actor.status));
    },
    { deadlineMs: 10_000 },
  );
}

it("needs no Template, in whatever state the actor is", async () => {
  await fixture.template("leaves");
  const [fresh, running, asleep] = [
    await fixture.actor("leaves"),
    await fixture.actor("leaves"),
    await fixture.actor("leaves"),
  ];
  await fixture.wake(running);
  await fixture.wake(asleep);
  await fixture.suspend(asleep.metadata.name, { mode: "Sync" });
  await fixture.until(asleep.metadata.name, ({ status }) => status?.generation === 1);
  await fixture.client.delete(templates, "leaves", "test");
  for (const { metadata } of [fresh, running, asleep]) await fixture.client.delete(actors, metadata.name, "test");
  for (const { metadata } of [fresh, running, asleep]) await gone(metadata.name);
  expect(fixture.epochs("release", fresh)).toEqual([]);
  // once more where the watch is slower than the answer that the finalizer is off: a release may be repeated
  for (const actor of [running, asleep]) expect(new Set(fixture.epochs("release", actor))).toEqual(new Set([1]));
  // the collector takes its golden snapshot, and the operator what that had in the store
  await eventually(
    async () => {
      const { items } = await fixture.client.list(snapshots, { namespace: "test" });
      expect(items.filter(({ spec }) => spec.templateRef?.name === "leaves")).toEqual([]);
      expect([...fixture.atelet.stored.values()].filter(({ prefix }) => prefix.name.includes("leaves"))).toEqual([]);
    },
    { deadlineMs: 20_000 },
  );
});

it("says what is the matter with the node, and lets go at once when it is told to", async () => {
  const actor = await fixture.actor("app");
  const { name } = actor.metadata;
  await fixture.wake(actor);
  await fixture.until(name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
  await fixture.atelet.stop();
  await fixture.client.delete(actors, name, "test");
  const blocked = await fixture.until(name, (now) => condition(now, "Ready")?.reason === "DeletionBlocked", 20_000);
  expect(condition(blocked, "Ready")?.message).toMatch(/Waits for node node-a, whose atelet does not answer: bring/);
  await fixture.kubectl("-n", "test", "annotate", "actor", name, "substrate.run/abandon=true");
  await gone(name);
  await fixture.atelet.start();
});

it("of a namespace takes all that is in it along, though nothing can be made there any more", async () => {
  const [running, asleep, forked] = [await fixture.actor("app"), await fixture.actor("app"), "forked"];
  await fixture.wake(running);
  await fixture.wake(asleep);
  await fixture.suspend(asleep.metadata.name, { mode: "Sync" });
  const create = (name: string, of: string): Promise<unknown> =>
    fixture.client.create(snapshots, {
      metadata: { name, namespace: "test" },
      spec: { actorRef: { name: of }, tag: name },
    });
  await create("kept", asleep.metadata.name);
  await eventually(
    async () => {
      const kept = await fixture.client.get(snapshots, "kept", "test");
      expect(kept?.status?.storageState).toBe("SNAPSHOT_STORAGE_STATE_COMPLETED");
    },
    { deadlineMs: 10_000 },
  );
  await fixture.client.create(actors, {
    metadata: { name: forked, namespace: "test" },
    spec: { templateRef: { name: "app" }, state: "OnDemand", source: { snapshotRef: { name: "kept" } } },
  });
  let open = (): void => undefined;
  fixture.atelet.tagGate = new Promise((resolve) => (open = resolve));
  await create("unfinished", running.metadata.name);
  await eventually(
    () => {
      expect(fixture.epochs("tag", running)).toHaveLength(1);
    },
    { deadlineMs: 10_000 },
  );
  try {
    await fixture.client.delete(namespaces, "test");
    await eventually(
      async () => {
        const left = await fixture.client.get(namespaces, "test");
        if (left !== undefined) throw new Error(JSON.stringify(left.status));
      },
      { deadlineMs: 30_000 },
    );
  } finally {
    open();
  }
  for (const { metadata } of [running, asleep]) expect(fixture.atelet.actors.has(metadata.uid ?? "")).toBe(false);
  expect([...fixture.atelet.stored.values()].filter(({ prefix }) => prefix.name !== "test/unfinished")).toEqual([]);
  expect(fixture.atelet.calls.filter(({ method }) => method === "deleteStored").length).toBeGreaterThan(2);
});
