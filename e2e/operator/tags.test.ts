import { afterAll, beforeAll, expect, it } from "vitest";
import { type Actor, actors, type Snapshot, snapshots, templates } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { eventually } from "../support/poll.ts";
import { condition, Fixture } from "./fixture.ts";

let fixture: Fixture;
beforeAll(async () => {
  fixture = await Fixture.start();
  await fixture.template("app");
});
afterAll(async () => {
  await fixture.stop();
});

async function tag(name: string, actorName: string): Promise<Snapshot> {
  return fixture.client.create(snapshots, {
    metadata: { name, namespace: "test" },
    spec: { actorRef: { name: actorName }, tag: name },
  });
}

async function fork(name: string, source: string, templateName = "app"): Promise<Actor> {
  return fixture.client.create(actors, {
    metadata: { name, namespace: "test" },
    spec: { templateRef: { name: templateName }, state: "OnDemand", source: { snapshotRef: { name: source } } },
  });
}

async function until(name: string, holds: (snapshot: Snapshot) => boolean): Promise<Snapshot> {
  return eventually(
    async () => {
      const snapshot = await fixture.client.get(snapshots, name, "test");
      if (snapshot === undefined || !holds(snapshot)) throw new Error(`snapshot ${name}: ${JSON.stringify(snapshot)}`);
      return snapshot;
    },
    { deadlineMs: 10_000 },
  );
}

const isCompleted = ({ status }: Snapshot): boolean => status?.storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED";
const isFailed = ({ status }: Snapshot): boolean => status?.storageState === "SNAPSHOT_STORAGE_STATE_FAILED";
const ready = ({ status }: Snapshot) => status?.conditions?.find(({ type }) => type === "Ready");

async function gone(name: string): Promise<void> {
  await eventually(
    async () => {
      const snapshot = await fixture.client.get(snapshots, name, "test");
      if (snapshot !== undefined) throw new Error(JSON.stringify(snapshot));
    },
    { deadlineMs: 10_000 },
  );
}

/** A running actor. */
async function running(): Promise<Actor> {
  const actor = await fixture.actor("app");
  await fixture.wake(actor);
  return fixture.until(actor.metadata.name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
}

it("keeps a running actor's state, says so, and is a source for actors that get its revision", async () => {
  const actor = await running();
  let open = (): void => undefined;
  fixture.atelet.tagGate = new Promise((resolve) => (open = resolve));
  await tag("kept", actor.metadata.name);
  const early = await fork("early", "kept");
  const pending = await until("kept", ({ status }) => status?.store !== undefined);
  expect(pending.metadata.finalizers).toEqual(["substrate.run/snapshot"]);
  expect(pending.metadata.ownerReferences).toBeUndefined();
  expect(pending.status).toMatchObject({
    owner: "SNAPSHOT_OWNER_TAG",
    storageState: "SNAPSHOT_STORAGE_STATE_PENDING",
    actorUid: actor.metadata.uid,
    templateName: "app",
    nodeName: "node-a",
  });
  expect(ready(pending)).toMatchObject({ status: "False", reason: "Saving", message: /is being saved by node node-a/ });
  const waiting = await fixture.until("early", (now) => condition(now, "Ready") !== undefined);
  expect(waiting.status?.state).toBe("ACTOR_STATE_PENDING");
  expect(condition(waiting, "Ready")).toMatchObject({ status: "False", reason: "SnapshotNotReady" });
  await expect(fixture.wake(early)).rejects.toMatchObject({ code: "SNAPSHOT_NOT_READY" });

  open();
  const kept = await until("kept", isCompleted);
  expect(kept.status).toMatchObject({ fidelity: "Memory", sizeBytes: 2_048, digest: "sha256:stored" });
  expect(kept.status?.nodeName).toBeUndefined();
  expect(ready(kept)).toMatchObject({ status: "True", reason: "Completed" });
  expect(fixture.epochs("tag", actor)).toEqual([1]);

  await fixture.until("early", (now) => condition(now, "Ready")?.status === "True");
  await fixture.wake(early);
  expect(fixture.atelet.origins.get(early.metadata.uid ?? "")).toMatchObject({
    golden: false,
    prefix: { uid: kept.metadata.uid, name: "test/kept", store: "default" },
  });
  await fixture.until("early", ({ status }) => status?.revision === kept.status?.revision);
});

it("says why a source cannot be used", async () => {
  const actor = await running();
  await fixture.suspend(actor.metadata.name, { mode: "Sync" });
  const generation = `${actor.metadata.name}-1`;
  await until(generation, isCompleted);
  await tag("other-template", actor.metadata.name);
  await until("other-template", isCompleted);
  await fixture.template("app2");
  const refused: [string, string, string, string, RegExp][] = [
    ["f-missing", "nowhere", "app", "SnapshotMissing", /Snapshot test\/nowhere, does not exist: create it/],
    ["f-generation", generation, "app", "SnapshotUnusable", /is a generation of Actor .*: keep it as a tag/],
    ["f-template", "other-template", "app2", "SnapshotUnusable", /is of Template app, the actor's is app2/],
  ];
  for (const [name, source, template] of refused) await fork(name, source, template);
  for (const [name, , , reason, message] of refused) {
    const actorNow = await fixture.until(name, (now) => condition(now, "Ready") !== undefined);
    expect(condition(actorNow, "Ready")).toMatchObject({ status: "False", reason });
    expect(condition(actorNow, "Ready")?.message).toMatch(message);
  }
  // it comes later
  await tag("nowhere", actor.metadata.name);
  await fixture.until("f-missing", (now) => condition(now, "Ready")?.status === "True");
  // and goes before the first start
  await fixture.client.delete(snapshots, "nowhere", "test");
  const orphan = await fixture.until("f-missing", (now) => condition(now, "Ready")?.status === "False");
  expect(condition(orphan, "Ready")).toMatchObject({ reason: "SnapshotMissing" });
  await expect(fixture.wake(orphan)).rejects.toMatchObject({ code: "SNAPSHOT_MISSING" });
  await fixture.client.delete(actors, "f-missing", "test");
});

it("fails for good without an actor or a state, and goes at once when it is deleted", async () => {
  const fresh = await fixture.actor("app");
  await tag("of-nobody", "nobody");
  await tag("of-fresh", fresh.metadata.name);
  const nobody = await until("of-nobody", isFailed);
  expect(ready(nobody)).toMatchObject({ status: "False", reason: "UnknownActor" });
  expect(ready(nobody)?.message).toMatch(
    /Actor test\/nobody does not exist.*delete this Snapshot and make another one/,
  );
  expect(nobody.status?.conditions?.find(({ type }) => type === "Stalled")).toMatchObject({ status: "True" });
  expect(ready(await until("of-fresh", isFailed))?.message).toMatch(/has no state yet: it never ran/);
  const told = await fixture.kubectl("-n", "test", "get", "events", "--field-selector", "reason=SnapshotFailed");
  expect(told).toContain("snapshot/of-nobody");
  for (const name of ["of-nobody", "of-fresh"]) {
    const { uid } = (await fixture.client.get(snapshots, name, "test"))?.metadata ?? {};
    await fixture.client.delete(snapshots, name, "test");
    await gone(name);
    expect(fixture.atelet.calls.some((call) => call.method === "deleteStored" && call.uid === uid)).toBe(false);
  }
});

it("is tried again after what passes, and outlives its actor and its Template", async () => {
  await fixture.template("gone");
  const actor = await fixture.actor("gone");
  await fixture.wake(actor);
  fixture.atelet.refusals.push({ method: "tag", error: new SubstrateError("STORE_UNAVAILABLE", "no route") });
  await tag("outlives", actor.metadata.name);
  const kept = await until("outlives", isCompleted);
  expect(fixture.epochs("tag", actor)).toEqual([1, 1]);
  await fixture.client.delete(actors, actor.metadata.name, "test");
  await fixture.client.delete(templates, "gone", "test");
  await eventually(
    async () => {
      expect(await fixture.client.get(actors, actor.metadata.name, "test")).toBeUndefined();
    },
    { deadlineMs: 10_000 },
  );
  expect(isCompleted(await until("outlives", () => true))).toBe(true);
  expect(fixture.atelet.stored.has(kept.metadata.uid ?? "")).toBe(true);
  await fixture.client.delete(snapshots, "outlives", "test");
  await gone("outlives");
  expect(fixture.atelet.stored.has(kept.metadata.uid ?? "")).toBe(false);
});

it("of an actor that no node has is made by any node, by epoch 0", async () => {
  await fixture.template("quick", { snapshots: { detachDelay: "0s" } } as never);
  const actor = await fixture.actor("quick");
  await fixture.wake(actor);
  await fixture.suspend(actor.metadata.name, { mode: "Sync" });
  await fixture.until(actor.metadata.name, ({ status }) => status?.assignment?.nodeName === undefined);
  await tag("of-detached", actor.metadata.name);
  await until("of-detached", isCompleted);
  expect(fixture.epochs("tag", actor)).toEqual([0]);
});

it("goes on when the operator is restarted in the middle, also when its actor went meanwhile", async () => {
  const [stays, goes] = [await running(), await running()];
  let open = (): void => undefined;
  fixture.atelet.tagGate = new Promise((resolve) => (open = resolve));
  await tag("stays", stays.metadata.name);
  await tag("goes", goes.metadata.name);
  const early = await until("goes", ({ status }) => status?.store !== undefined);
  await eventually(
    () => {
      expect([...fixture.epochs("tag", stays), ...fixture.epochs("tag", goes)]).toEqual([1, 1]);
    },
    { deadlineMs: 20_000 },
  );
  await fixture.stopOperator("SIGTERM");
  open();
  await eventually(
    () => {
      expect(fixture.atelet.stored.has(early.metadata.uid ?? "")).toBe(true);
    },
    { deadlineMs: 20_000 },
  );
  // as if somebody had let it go
  await fixture.client.mergePatch(actors, goes.metadata.name, "test", { metadata: { finalizers: [] } });
  await fixture.client.delete(actors, goes.metadata.name, "test");
  await fixture.startOperator();
  await until("stays", isCompleted);
  await until("goes", isCompleted);
});

it("is deleted while it is being made, and by a node that is back", async () => {
  const actor = await running();
  let open = (): void => undefined;
  fixture.atelet.tagGate = new Promise((resolve) => (open = resolve));
  await tag("cut", actor.metadata.name);
  const { metadata } = await until("cut", ({ status }) => status?.store !== undefined);
  await fixture.client.delete(snapshots, "cut", "test");
  await gone("cut");
  open();
  expect(fixture.atelet.calls.at(-1)).toMatchObject({ method: "deleteStored", uid: metadata.uid });

  await tag("waits", actor.metadata.name);
  await until("waits", isCompleted);
  await fixture.atelet.stop();
  await fixture.client.delete(snapshots, "waits", "test");
  const blocked = await until("waits", (now) => ready(now)?.reason === "DeletionBlocked");
  expect(ready(blocked)?.message).toMatch(/bring an atelet back, or set annotation substrate.run\/abandon/);
  await tag("abandoned", actor.metadata.name);
  await fixture.kubectl("-n", "test", "annotate", "snapshot", "waits", "substrate.run/abandon=true");
  await gone("waits");
  await fixture.atelet.start();
  await until("abandoned", isCompleted);
});
