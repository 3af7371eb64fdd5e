import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { actors, type Snapshot, snapshots } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { isConflict } from "@substrate/lib/kube/client.ts";
import { Reflector } from "@substrate/lib/kube/reflector.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { Assignments } from "@substrate/operator/assignments.ts";
import { Freshest } from "@substrate/operator/freshest.ts";
import { ActorState } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { leases, nodes } from "@substrate/lib/kube/types.ts";
import { eventually } from "../support/poll.ts";
import { condition, Fixture } from "./fixture.ts";

const api = "/apis/subresources.substrate.run/v1alpha1/namespaces/test/actors";

describe("operator", () => {
  let fixture: Fixture;
  beforeAll(async () => {
    fixture = await Fixture.start();
    await fixture.template("app");
  });
  afterAll(async () => {
    await fixture.stop();
  });

  it("makes a new actor Ready and asleep, and writes nothing more while nothing happens", async () => {
    const actor = await fixture.actor("app");
    expect(actor.status).toMatchObject({ state: "ACTOR_STATE_SUSPENDED", generation: 0, snapshots: [] });
    expect(actor.metadata.finalizers).toContain("substrate.run/actor");
    expect(condition(actor, "Ready")).toMatchObject({ reason: "Asleep" });
    // another actor's whole life passes, and this one isn't touched
    const other = await fixture.actor("app");
    await fixture.wake(other);
    await fixture.until(other.metadata.name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
    expect((await fixture.read(actor.metadata.name)).metadata.resourceVersion).toBe(actor.metadata.resourceVersion);
  });

  it("grants epoch 1 with the node's session, once for wakes that race", async () => {
    const actor = await fixture.actor("app");
    const nodeNames = await Promise.all([fixture.wake(actor), fixture.wake(actor), fixture.wake(actor)]);
    expect(nodeNames).toEqual(["node-a", "node-a", "node-a"]);
    const running = await fixture.until(actor.metadata.name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
    expect(running.status?.assignment).toEqual({ nodeName: "node-a", epoch: 1, session: fixture.atelet.session });
    expect(fixture.epochs("resume", actor)).toEqual([1]);
  });

  it("overwrites no assignment that it hasn't read, and wakes under the one that stands", async () => {
    const actor = await fixture.actor("app");
    const { name } = actor.metadata;
    const foreign = { nodeName: "node-a", epoch: 7, session: fixture.atelet.session };
    await fixture.client.mergePatch(
      actors,
      name,
      "test",
      { status: { assignment: foreign } },
      { subresource: "status" },
    );
    // as an operator that read the actor before the other's write
    const reflector = new Reflector(fixture.client, actors, { log: createLogger("test", "error") });
    const assignments = new Assignments(fixture.client, new Freshest(reflector), "cluster", () => ({ term: 1n }));
    const node = { nodeName: "node-b", session: "s" };
    await expect(assignments.grant(actor, node, 0)).rejects.toSatisfy(isConflict);
    expect((await fixture.read(name)).status?.assignment).toEqual(foreign);
    await fixture.wake(actor);
    expect((await fixture.read(name)).status?.assignment).toEqual(foreign);
    expect(fixture.epochs("resume", actor)).toEqual([7]);
  });

  it("writes the status once for a resume and once for a suspend, beside the grant", async () => {
    const actor = await fixture.actor("app");
    const { name } = actor.metadata;
    const seen: string[] = [];
    const reflector = new Reflector(fixture.client, actors, { log: createLogger("test", "error"), namespace: "test" });
    const stop = new AbortController();
    const running = reflector.run(stop.signal);
    try {
      await reflector.synced;
      reflector.onChange((key, now) => {
        if (key === `test/${name}`) seen.push(`${now?.status?.state ?? ""} ${now?.status?.lastOperation?.type ?? ""}`);
      });
      await fixture.wake(actor);
      await fixture.until(name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
      await fixture.suspend(name);
      await fixture.until(name, ({ status }) => status?.state === "ACTOR_STATE_SUSPENDED");
      // what comes late would come with the next actor's own life
      const later = await fixture.actor("app");
      await fixture.wake(later);
      await fixture.until(later.metadata.name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
      expect(seen).toEqual(["ACTOR_STATE_SUSPENDED ", "ACTOR_STATE_RUNNING Resume", "ACTOR_STATE_SUSPENDED Suspend"]);
    } finally {
      stop.abort();
      await running;
    }
  });

  it("is kept by the API server from ever taking an epoch back", async () => {
    const actor = await fixture.actor("app");
    await fixture.wake(actor);
    const patch = { status: { assignment: { epoch: 0 } } };
    await expect(
      fixture.client.mergePatch(actors, actor.metadata.name, "test", patch, { subresource: "status" }),
    ).rejects.toThrow(/epoch/);
  });

  it("saves by the suspend verb through kube-apiserver, shows the result, and makes the Snapshot", async () => {
    const actor = await fixture.actor("app");
    const { name, uid = "" } = actor.metadata;
    await fixture.wake(actor);
    const answer = JSON.parse(await fixture.suspend(name)) as {
      kind: string;
      operationId: string;
    };
    expect(answer).toMatchObject({ kind: "Operation", type: "Suspend", actor: { name, uid } });
    const asleep = await fixture.until(
      name,
      ({ status }) => status?.lastOperation?.id === answer.operationId && status.lastOperation.endTime !== undefined,
    );
    expect(asleep.status).toMatchObject({
      state: "ACTOR_STATE_SUSPENDED",
      generation: 1,
      lastOperation: { type: "Suspend", result: "Succeeded" },
      snapshots: [{ name: `${name}-1`, storageState: "SNAPSHOT_STORAGE_STATE_PENDING", nodeName: "node-a" }],
    });
    expect(condition(asleep, "Durable")).toMatchObject({ status: "False", reason: "Pending" });
    expect(await fixture.client.get(snapshots, `${name}-1`, "test")).toBeUndefined();

    fixture.atelet.complete(uid);
    const durable = await fixture.until(name, (now) => condition(now, "Durable")?.status === "True");
    expect(condition(durable, "Ready")).toMatchObject({ status: "True", reason: "Asleep" });
    const snapshot = async (generation: number): Promise<Snapshot | undefined> =>
      fixture.client.get(snapshots, `${name}-${String(generation)}`, "test");
    await eventually(
      async () => {
        expect((await snapshot(1))?.status).toMatchObject({
          owner: "SNAPSHOT_OWNER_ACTOR",
          storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED",
          generation: 1,
          epoch: 1,
          digest: "sha256:manifest",
          nodeName: "node-a",
        });
      },
      { deadlineMs: 20_000 },
    );
    // deleted by a person: the newest one comes back
    await fixture.client.delete(snapshots, `${name}-1`, "test");
    await eventually(
      async () => {
        expect((await snapshot(1))?.status?.storageState).toMatch(/COMPLETED/);
      },
      { deadlineMs: 20_000 },
    );
    // a newer completed one replaces it
    await fixture.wake(actor);
    await fixture.suspend(name, { mode: "Sync" });
    await eventually(
      async () => {
        expect((await snapshot(2))?.status?.storageState).toMatch(/COMPLETED/);
        expect(await snapshot(1)).toBeUndefined();
      },
      { deadlineMs: 20_000 },
    );
  });

  it("says what a suspend may carry, and what stood in its way", async () => {
    const actor = await fixture.actor("app");
    const { name } = actor.metadata;
    await expect(fixture.suspend(name, { mode: "sync" })).rejects.toThrow(/allowed are .*Async.*Sync/s);
    await expect(fixture.kubectl("create", "--raw", `${api}/nobody/resume`, "-f", "/dev/null")).rejects.toThrow(
      /Actor test\/nobody does not exist/,
    );
    await fixture.wake(actor);
    fixture.atelet.refusals.push({ method: "suspend", error: new SubstrateError("REQUESTS_OPEN", "2 requests open") });
    await fixture.suspend(name);
    const failed = await fixture.until(name, ({ status }) => status?.lastOperation?.result === "Failed");
    expect(failed.status?.lastOperation).toMatchObject({
      reason: "REQUESTS_OPEN",
      message: expect.stringContaining("2 requests open") as string,
    });
    await eventually(
      async () => {
        expect(await fixture.kubectl("-n", "test", "describe", "actor", name)).toMatch(/FailedSuspend/);
      },
      { deadlineMs: 20_000 },
    );
  });

  it("serves log and proxy with the caller's path, without the caller's credentials", async () => {
    const actor = await fixture.actor("app");
    const { name } = actor.metadata;
    await fixture.wake(actor);
    expect(await fixture.kubectl("get", "--raw", `${api}/${name}/log?tail=3`)).toBe("tail=3\n");
    await expect(fixture.kubectl("get", "--raw", `${api}/${name}/log?lines=3`)).rejects.toThrow(/tail=N/);
    const echoed = JSON.parse(await fixture.kubectl("get", "--raw", `${api}/${name}/proxy/a/b?c=d`)) as {
      url: string;
      headers: Record<string, string>;
    };
    expect(echoed.url).toBe("/a/b?c=d");
    expect(echoed.headers["substrate-actor"]).toBe(`test/${name}`);
    expect(Object.keys(echoed.headers).filter((header) => /^x-remote|^authorization/.test(header))).toEqual([]);
  });

  it("grants the next epoch at the wake after a node's restart, and at once to what still runs", async () => {
    const asleep = await fixture.actor("app");
    const running = await fixture.actor("app");
    await Promise.all([fixture.wake(asleep), fixture.wake(running)]);
    await fixture.suspend(asleep.metadata.name);
    await fixture.until(asleep.metadata.name, ({ status }) => status?.state === "ACTOR_STATE_SUSPENDED");
    await fixture.atelet.newSession();
    const { session } = fixture.atelet;
    const regranted = await fixture.until(
      running.metadata.name,
      ({ status }) => status?.assignment?.session === session,
    );
    expect(regranted.status?.assignment?.epoch).toBe(2);
    expect((await fixture.read(asleep.metadata.name)).status?.assignment?.epoch).toBe(1);
    await fixture.wake(asleep);
    expect((await fixture.read(asleep.metadata.name)).status?.assignment).toEqual({
      nodeName: "node-a",
      epoch: 2,
      session,
    });
  });

  it("lets the node go after detachDelay, keeps the epoch, and grants the next one at the wake", async () => {
    await fixture.template("brief", { snapshots: { detachDelay: "0s" } as never });
    const actor = await fixture.actor("brief");
    const { name, uid = "" } = actor.metadata;
    await fixture.wake(actor);
    await fixture.suspend(name);
    await fixture.until(name, ({ status }) => status?.generation === 1);
    fixture.atelet.complete(uid);
    const detached = await fixture.until(name, ({ status }) => status?.assignment?.nodeName === undefined);
    expect(detached.status?.assignment).toEqual({ epoch: 1 });
    expect(condition(detached, "Ready")).toMatchObject({ status: "True" });
    expect((await fixture.client.get(snapshots, `${name}-1`, "test"))?.status?.storageState).toMatch(/COMPLETED/);
    await fixture.wake(actor);
    expect((await fixture.read(name)).status?.assignment).toMatchObject({ nodeName: "node-a", epoch: 2 });
  });

  it("keeps an actor asleep while spec.state is Suspended", async () => {
    const actor = await fixture.actor("app");
    const { name, uid = "" } = actor.metadata;
    await fixture.wake(actor);
    await fixture.client.mergePatch(actors, name, "test", { spec: { state: "Suspended" } });
    const held = await fixture.until(
      name,
      ({ status }) => status?.state === "ACTOR_STATE_SUSPENDED" && status.generation === 1,
    );
    expect(fixture.atelet.actors.get(uid)?.held).toBe(true);
    await fixture.until(name, (now) => condition(now, "Ready")?.reason === "Suspended");
    await expect(fixture.wake(held)).rejects.toMatchObject({ code: "HELD" });
    await fixture.client.mergePatch(actors, name, "test", { spec: { state: "OnDemand" } });
    await eventually(
      () => {
        expect(fixture.atelet.actors.get(uid)?.held).toBe(false);
      },
      { deadlineMs: 20_000 },
    );
    await fixture.wake(actor);
  });

  it("places nothing on a cordoned node and says so", async () => {
    await fixture.template("hasty", { wakeTimeout: "1s" });
    const actor = await fixture.actor("hasty");
    await fixture.client.create(nodes, { metadata: { name: "node-a" }, spec: { unschedulable: true } });
    try {
      const waking = expect(fixture.wake(actor)).rejects.toMatchObject({
        code: "NO_ROOM",
        message: expect.stringMatching(/cordoned/) as string,
      });
      await fixture.until(actor.metadata.name, (now) => condition(now, "Scheduled")?.status === "False");
      await waking;
    } finally {
      await fixture.client.delete(nodes, "node-a");
    }
    expect(await fixture.wake(actor)).toBe("node-a");
  });

  it("tells of a crash, and starts the actor anew at the next wake", async () => {
    const actor = await fixture.actor("app");
    const { name, uid = "" } = actor.metadata;
    await fixture.wake(actor);
    const crash = { message: "the program ended with code 3", timeUnixMs: BigInt(Date.now()) };
    fixture.atelet.change(uid, { state: ActorState.ACTOR_STATE_CRASHED, crash });
    const crashed = await fixture.until(name, ({ status }) => status?.state === "ACTOR_STATE_CRASHED");
    expect(crashed.status?.crash?.message).toMatch(/code 3/);
    await eventually(
      async () => {
        expect(await fixture.kubectl("-n", "test", "describe", "actor", name)).toMatch(/Warning\s+Crashed/);
      },
      { deadlineMs: 20_000 },
    );
    await fixture.wake(actor);
    await fixture.until(name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
  });

  it("lets a deleted actor go only when its node has removed it", async () => {
    const actor = await fixture.actor("app");
    const { name } = actor.metadata;
    await fixture.wake(actor);
    const gate = Promise.withResolvers<undefined>();
    fixture.atelet.deleteGate = gate.promise;
    await fixture.client.delete(actors, name, "test");
    await eventually(
      () => {
        expect(fixture.epochs("release", actor)).toEqual([1]);
      },
      { deadlineMs: 20_000 },
    );
    expect((await fixture.read(name)).metadata.deletionTimestamp).toBeDefined();
    gate.resolve(undefined);
    await eventually(
      async () => {
        expect(await fixture.client.get(actors, name, "test")).toBeUndefined();
      },
      { deadlineMs: 20_000 },
    );
    // the same name again shares nothing with it
    const again = await fixture.actor("app", name);
    expect(again.metadata.uid).not.toBe(actor.metadata.uid);
    expect(again.status).toMatchObject({ generation: 0 });
    expect(again.status?.assignment).toBeUndefined();
  });

  it("gives its Lease back at SIGTERM, and goes on from the objects alone", async () => {
    const actor = await fixture.actor("app");
    await fixture.wake(actor);
    const before = await fixture.until(actor.metadata.name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
    expect(await fixture.stopOperator("SIGTERM")).toBe(0);
    const lease = await fixture.client.get(leases, "substrate-operator", "substrate-system");
    expect(lease?.spec?.holderIdentity ?? "").toBe("");
    await fixture.startOperator();
    await eventually(
      async () => {
        await fixture.wake(actor);
      },
      { deadlineMs: 10_000 },
    );
    const after = await fixture.read(actor.metadata.name);
    expect(after.status?.assignment).toEqual(before.status?.assignment);
    const renewed = await fixture.client.get(leases, "substrate-operator", "substrate-system");
    expect(renewed?.spec?.leaseTransitions).toBeGreaterThan(lease?.spec?.leaseTransitions ?? 0);
  });
});
