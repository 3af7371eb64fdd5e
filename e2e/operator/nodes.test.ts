import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { type Actor, actors } from "@substrate/crds/index.ts";
import { type Event, events, namespaces, type Node, nodes, type Taint } from "@substrate/lib/kube/types.ts";
import { eventually } from "../support/poll.ts";
import { type FakeAtelet } from "./fake-atelet.ts";
import { condition, Fixture } from "./fixture.ts";

let fixture: Fixture;
let other: FakeAtelet;

beforeAll(async () => {
  fixture = await Fixture.start({ nodeLostAfter: "3" });
  other = fixture.newAtelet("node-b");
  await other.start();
  for (const [name, disk] of [
    ["node-a", "hdd"],
    ["node-b", "ssd"],
  ] as const) {
    await fixture.client.create(nodes, { metadata: { name, labels: { disk } } });
    const status = { status: { conditions: [{ type: "Ready", status: "True" }] } };
    await fixture.client.mergePatch(nodes, name, undefined, status, { subresource: "status" });
  }
  // nothing leaves by itself, and what waits for a node is told soon
  await fixture.template("app", { wakeTimeout: "3s" });
});
afterEach(async () => {
  for (const name of ["node-a", "node-b"]) await change(name, { unschedulable: false, taints: [] });
});
afterAll(async () => {
  await (other as FakeAtelet | undefined)?.stop();
  await (fixture as Fixture | undefined)?.stop();
});

async function change(name: string, spec: NonNullable<Node["spec"]>): Promise<void> {
  await fixture.client.mergePatch(nodes, name, undefined, { spec });
}

async function cordoned(name: string): Promise<void> {
  await change(name, { unschedulable: true });
}

it("tells what a node reports that a person should hear of as an Event about the node, each time it happens", async () => {
  const message = "/state/actors/1/generations/1/image/pages.img could not be brought to the disk";
  const told = async (): Promise<Event | undefined> => {
    const { items } = await fixture.client.list(events, {});
    return items.find(
      ({ reason, involvedObject }) => reason === "SnapshotNotOnDisk" && involvedObject.name === "node-b",
    );
  };
  for (const count of [1, 2]) {
    other.report([{ reason: "SnapshotNotOnDisk", message, count: BigInt(count) }]);
    await eventually(
      async () => {
        expect(await told()).toMatchObject({ type: "Warning", message, count, involvedObject: { kind: "Node" } });
      },
      { deadlineMs: 10_000 },
    );
  }
});

const select = (disk: string): Partial<Actor["spec"]> => ({ nodeSelector: { disk } });

/** Asleep on the node, its generation in the store or not. */
async function asleep(atelet: FakeAtelet, storage: "COMPLETED" | "PENDING"): Promise<Actor> {
  const disk = atelet === other ? "ssd" : "hdd";
  const actor = await fixture.actor("app", undefined, select(disk));
  const { name, uid = "" } = actor.metadata;
  expect(await fixture.wake(actor)).toBe(atelet.nodeName);
  // free to go anywhere
  await fixture.client.mergePatch(actors, name, "test", { spec: { nodeSelector: null } });
  await fixture.suspend(name);
  await fixture.until(name, ({ status }) => status?.generation === 1);
  if (storage === "COMPLETED") atelet.complete(uid);
  return fixture.until(
    name,
    (now) => condition(now, "Durable")?.reason === (storage === "COMPLETED" ? "Completed" : "Pending"),
  );
}

const nodeOf = ({ status }: Actor): string | undefined => status?.assignment?.nodeName;

it("goes by labels and taints, and says what keeps how many nodes from it", async () => {
  const onB = await fixture.actor("app", undefined, select("ssd"));
  expect(await fixture.wake(onB)).toBe("node-b");
  const taint: Taint = { key: "dedicated", value: "gpu", effect: "NoSchedule" };
  await change("node-b", { taints: [taint] });
  await fixture.template("tolerant", {
    tolerations: [{ key: "dedicated", operator: "Exists" }],
    nodeSelector: { disk: "ssd" },
  });
  expect(await fixture.wake(await fixture.actor("tolerant"))).toBe("node-b");
  const nowhere = await fixture.actor("app", undefined, select("ssd"));
  const refused = expect(fixture.wake(nowhere)).rejects.toMatchObject({
    code: "NO_ROOM",
    message: expect.stringContaining(
      "none of 2 nodes may take it (1 lacks label disk=ssd of its nodeSelector, 1 has taint dedicated=gpu:NoSchedule, which is not tolerated)",
    ) as string,
  });
  await fixture.until(nowhere.metadata.name, (now) => condition(now, "Scheduled")?.reason === "NoNode");
  await refused;
  // a wake that waits goes on as soon as a node is opened
  const waiting = fixture.wake(nowhere);
  await fixture.until(nowhere.metadata.name, (now) => condition(now, "Scheduled")?.reason === "NoNode");
  await change("node-b", { taints: [] });
  expect(await waiting).toBe("node-b");
});

it("tries a Template only where its actors may be", async () => {
  const { metadata } = await fixture.apply("picky", { nodeSelector: { disk: "ssd" } });
  await fixture.template("picky", { nodeSelector: { disk: "ssd" } });
  const tried = ({ calls }: FakeAtelet): boolean =>
    calls.some(({ method, uid }) => method === "tryProgram" && uid === metadata.uid);
  expect([tried(fixture.atelet), tried(other)]).toEqual([false, true]);
});

it("of a cordoned node leaves with a completed snapshot for another node, under the next epoch", async () => {
  const actor = await asleep(fixture.atelet, "COMPLETED");
  const { name } = actor.metadata;
  await cordoned("node-a");
  await fixture.until(name, (now) => nodeOf(now) === undefined);
  expect(fixture.epochs("release", actor)).toEqual([1]);
  expect(await fixture.wake(actor)).toBe("node-b");
  const moved = await fixture.until(name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
  expect(moved.status).toMatchObject({
    generation: 1,
    assignment: { nodeName: "node-b", epoch: 2, session: other.session },
  });
});

it("of a cordoned node wakes where it is with a pending snapshot, and leaves when that is in the store", async () => {
  const actor = await asleep(fixture.atelet, "PENDING");
  const { name, uid = "" } = actor.metadata;
  await cordoned("node-a");
  const stays = await fixture.until(name, (now) => condition(now, "Scheduled")?.reason === "NodeUnfit");
  expect(condition(stays, "Scheduled")?.message).toMatch(
    /node-a, which is cordoned; it leaves when all that was saved/,
  );
  expect(await fixture.wake(actor)).toBe("node-a");
  const running = await fixture.until(name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
  expect(condition(running, "Scheduled")?.message).toMatch(/stays there while it runs/);
  await fixture.suspend(name);
  await fixture.until(name, ({ status }) => status?.generation === 2);
  fixture.atelet.complete(uid);
  await fixture.until(name, (now) => nodeOf(now) === undefined);
  expect(await fixture.wake(actor)).toBe("node-b");
});

it("stays on a cordoned node while no other one is open to it", async () => {
  const actor = await asleep(fixture.atelet, "COMPLETED");
  const { name } = actor.metadata;
  await cordoned("node-b");
  await cordoned("node-a");
  const stays = await fixture.until(name, (now) => condition(now, "Scheduled")?.reason === "NodeUnfit");
  expect(condition(stays, "Scheduled")?.message).toMatch(/no other node is open to it/);
  expect(nodeOf(stays)).toBe("node-a");
  await change("node-b", { unschedulable: false });
  await fixture.until(name, (now) => nodeOf(now) === undefined);
});

it("moves when its nodeSelector is changed while it sleeps, and not while it runs", async () => {
  const actor = await asleep(fixture.atelet, "COMPLETED");
  const { name, uid = "" } = actor.metadata;
  const patch = async (disk: string): Promise<unknown> =>
    fixture.client.mergePatch(actors, name, "test", { spec: select(disk) });
  await patch("ssd");
  await fixture.until(name, (now) => nodeOf(now) === undefined);
  expect(await fixture.wake(actor)).toBe("node-b");
  await patch("hdd");
  const stays = await fixture.until(name, (now) => condition(now, "Scheduled")?.reason === "NodeUnfit");
  expect(condition(stays, "Scheduled")?.message).toMatch(
    /lacks label disk=hdd of its nodeSelector; it stays there while it runs/,
  );
  await fixture.suspend(name);
  await fixture.until(name, ({ status }) => status?.generation === 2);
  other.complete(uid);
  await fixture.until(name, (now) => nodeOf(now) === undefined);
  expect(await fixture.wake(actor)).toBe("node-a");
});

it("holds a wake while the node's atelet is restarted, and grants anew to the session that comes", async () => {
  const actor = await asleep(other, "PENDING");
  await other.giveLeaseBack();
  await other.stop();
  const waking = fixture.wake(actor);
  // joined, not asked for a second time
  const again = fixture.wake(actor);
  await eventually(
    () => {
      expect(fixture.log()).toMatch(
        new RegExp(`wake is tried again.*${actor.metadata.name}|${actor.metadata.name}.*wake is tried again`),
      );
    },
    { deadlineMs: 20_000 },
  );
  other.session = `${other.session}-2`;
  await other.start();
  expect(await Promise.all([waking, again])).toEqual(["node-b", "node-b"]);
  expect((await fixture.read(actor.metadata.name)).status?.assignment).toEqual({
    nodeName: "node-b",
    epoch: 2,
    session: other.session,
  });
});

it("says that actors are lost with their node, once, moves nothing, and goes on when the node is back", async () => {
  const stored = await asleep(other, "COMPLETED");
  const running = await fixture.actor("app", undefined, select("ssd"));
  expect(await fixture.wake(running)).toBe("node-b");
  await fixture.until(running.metadata.name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
  await other.stop();
  const lost = (now: Actor): boolean => condition(now, "Ready")?.reason === "NodeLost";
  expect(condition(await fixture.until(stored.metadata.name, lost), "Ready")?.message).toMatch(
    /node-b, whose atelet does not answer, though the Node is Ready.*Generation 1 is in the store.*bring the node back/,
  );
  await fixture.until(running.metadata.name, lost);
  const asked = performance.now();
  await expect(fixture.wake(stored)).rejects.toMatchObject({ code: "NODE_LOST" });
  expect(performance.now() - asked).toBeGreaterThan(2_500);

  // a new leader counts anew, which is no second loss; and it finds the namespace closed to the atelets' pods
  const enforce = { "pod-security.kubernetes.io/enforce": "baseline" };
  await fixture.client.mergePatch(namespaces, "substrate-system", undefined, { metadata: { labels: enforce } });
  await fixture.stopOperator("SIGTERM");
  await fixture.startOperator();
  await expect(fixture.wake(stored)).rejects.toMatchObject({
    code: expect.stringMatching(/NODE_LOST|NODE_UNAVAILABLE/) as string,
  });
  await eventually(
    () => {
      expect(fixture.log().split('"message":"node is lost"').length - 1).toBe(2);
    },
    { deadlineMs: 10_000 },
  );
  const told = async (name: string, reason: string, namespace = "test"): Promise<Event[]> =>
    (await fixture.client.list(events, { namespace })).items.filter(
      (event) => event.involvedObject.name === name && event.reason === reason,
    );
  for (const { metadata } of [stored, running]) {
    const found = await told(metadata.name, "NodeLost");
    expect(found.map(({ count }) => count)).toEqual([1]);
  }
  expect(await told("substrate-system", "PodSecurityForbids", "substrate-system")).toHaveLength(1);
  expect((await fixture.read(stored.metadata.name)).status?.assignment).toEqual(stored.status?.assignment);

  other.session = `${other.session}-3`;
  await other.start();
  for (const { metadata } of [stored, running]) {
    await fixture.until(metadata.name, (now) => condition(now, "Ready")?.status === "True");
  }
  const regranted = await fixture.until(
    running.metadata.name,
    ({ status }) => status?.assignment?.session === other.session,
  );
  expect(regranted.status?.assignment?.epoch).toBe(2);
  expect(await fixture.wake(stored)).toBe("node-b");
  expect((await fixture.read(stored.metadata.name)).status?.assignment).toMatchObject({
    epoch: 2,
    session: other.session,
  });
});
