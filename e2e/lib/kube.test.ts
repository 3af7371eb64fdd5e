import { isConflict, isUnreachable, KubeClient } from "@substrate/lib/kube/client.ts";
import { loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { LeaseHolder, type LeaseHolderOptions, type LeaseResult, unixSeconds } from "@substrate/lib/kube/lease.ts";
import { Reflector } from "@substrate/lib/kube/reflector.ts";
import { leases } from "@substrate/lib/kube/types.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startControlPlane, type TestControlPlane } from "../support/controlplane.ts";
import { eventually } from "../support/poll.ts";

let plane: TestControlPlane;
let client: KubeClient;
const log = createLogger("test");
log.silent = true;
const namespace = "default";

beforeAll(async () => {
  plane = await startControlPlane({ objects: false });
  client = new KubeClient(loadKubeConfig(plane.kubeconfig), { fieldManager: "lib-test", timeoutMs: 5_000 });
});

afterAll(async () => {
  // undefined when beforeAll failed
  await (client as KubeClient | undefined)?.close();
  await (plane as TestControlPlane | undefined)?.stop();
});

function holder(
  name: string,
  identity: string,
  takeOver: LeaseHolderOptions["takeOver"],
  options: Partial<LeaseHolderOptions> = {},
): LeaseHolder {
  return new LeaseHolder({ client, namespace, name, identity, durationMs: 15_000, takeOver, log, ...options });
}

describe("client", () => {
  it("creates, reads, changes on condition and deletes only the object that is meant", async () => {
    expect(await client.get(leases, "c", namespace)).toBeUndefined();
    const first = await client.create(leases, { metadata: { name: "c", namespace }, spec: { holderIdentity: "a" } });
    const second = await client.replace(leases, { ...first, spec: { holderIdentity: "b" } });
    await expect(client.replace(leases, first)).rejects.toSatisfy(isConflict);
    const { resourceVersion } = first.metadata;
    const stale = { metadata: { name: "c", namespace, ...(resourceVersion === undefined ? {} : { resourceVersion }) } };
    await expect(client.apply(leases, stale, { force: true })).rejects.toSatisfy(isConflict);
    expect((await client.get(leases, "c", namespace))?.spec?.holderIdentity).toBe("b");
    const listed = (await client.list(leases, { namespace })).items.find(({ metadata }) => metadata.name === "c");
    expect(listed).toEqual(second);
    await expect(client.delete(leases, "c", namespace, { uid: "another" })).rejects.toSatisfy(isConflict);
    expect(await client.delete(leases, "c", namespace)).toBe(true);
    expect(await client.delete(leases, "c", namespace)).toBe(false);
  });
});

describe("a leader's Lease", () => {
  it("has one holder of five that race for it", async () => {
    const results = await Promise.all(["a", "b", "c", "d", "e"].map((id) => holder("race", id, "WhenExpired").step()));
    expect(results.map(({ outcome }) => outcome).sort()).toEqual([
      "acquired",
      "waiting",
      "waiting",
      "waiting",
      "waiting",
    ]);
  });

  it("passes on at once when it is released, with a higher term", async () => {
    const a = holder("released", "a", "WhenExpired");
    const b = holder("released", "b", "WhenExpired");
    expect(await a.step()).toMatchObject({ outcome: "acquired", held: { term: 1 } });
    expect(await a.step()).toMatchObject({ outcome: "renewed", held: { term: 1 } });
    expect(await b.step()).toEqual({ outcome: "waiting", holder: "a" });
    await a.release();
    expect(a.held).toBeUndefined();
    expect(await b.step()).toMatchObject({ outcome: "acquired", held: { term: 2 } });
  });

  it("passes on when it was seen unrenewed for its whole duration, and the old holder learns it", async () => {
    let clockMs = 0;
    const a = holder("expired", "a", "WhenExpired");
    const b = holder("expired", "b", "WhenExpired", { now: () => clockMs });
    await a.step();
    expect((await b.step()).outcome).toBe("waiting");
    clockMs = 14_999;
    await a.step();
    expect((await b.step()).outcome).toBe("waiting");
    clockMs += 14_999;
    expect((await b.step()).outcome).toBe("waiting");
    clockMs += 1;
    expect(await b.step()).toMatchObject({ outcome: "acquired", held: { term: 2, sentMs: clockMs } });
    expect(await a.step()).toEqual({ outcome: "lost", reason: "foreign" });
    expect(await a.step()).toEqual({ outcome: "lost", reason: "foreign" });
    clockMs += 15_000;
    expect(b.held).toBeUndefined();
    expect(await b.step()).toEqual({ outcome: "lost", reason: "expired" });
  });
});

describe("a leader's Lease made anew", () => {
  const options = { firstTerm: unixSeconds };

  it("regression: began with term 1 again after it was deleted, below all that was heard before", async () => {
    const old = await holder("deleted", "a", "WhenExpired", { firstTerm: () => unixSeconds() - 60 }).step();
    if (old.outcome !== "acquired") throw new Error(old.outcome);
    const taken = { spec: { holderIdentity: "" } };
    await client.mergePatch(leases, "deleted", namespace, taken);
    const next = await holder("deleted", "b", "WhenExpired", options).step();
    expect(next).toMatchObject({ outcome: "acquired", held: { term: old.held.term + 1 } });
    await client.delete(leases, "deleted", namespace);
    const anew = await holder("deleted", "c", "WhenExpired", options).step();
    if (anew.outcome !== "acquired") throw new Error(anew.outcome);
    expect(anew.held.term).toBeGreaterThan(old.held.term + 1);
    expect(anew.held.lease.spec?.leaseTransitions).toBe(anew.held.term);
  });

  it("is one without leaseTransitions, too, also while it is held", async () => {
    const early = unixSeconds();
    await client.create(leases, { metadata: { name: "bare", namespace }, spec: {} });
    const ours = holder("bare", "a", "WhenExpired", options);
    const acquired = await ours.step();
    if (acquired.outcome !== "acquired") throw new Error(acquired.outcome);
    expect(acquired.held.term).toBeGreaterThanOrEqual(early);
    await client.mergePatch(leases, "bare", namespace, { spec: { leaseTransitions: null } });
    const renewed = await ours.step();
    if (renewed.outcome !== "renewed") throw new Error(renewed.outcome);
    expect(renewed.held.term).toBeGreaterThanOrEqual(acquired.held.term);
  });
});

describe("a node's Lease", () => {
  it("carries its annotations, survives another's edit, and is lost when it is gone or taken", async () => {
    const annotations = { "substrate.run/address": "10.0.0.1:7000" };
    const labels = { "substrate.run/part": "atelet" };
    const first = holder("node", "session-1", "AtOnce", { annotations, labels });
    await first.step();
    await client.mergePatch(leases, "node", namespace, { metadata: { annotations: { note: "by a person" } } });
    expect(await first.step()).toMatchObject({
      outcome: "renewed",
      held: { lease: { metadata: { labels, annotations: { ...annotations, note: "by a person" } } } },
    });
    const second = holder("node", "session-2", "AtOnce", { annotations });
    expect((await second.step()).outcome).toBe("acquired");
    expect(await first.step()).toEqual({ outcome: "lost", reason: "foreign" });
    await client.delete(leases, "node", namespace);
    expect(await second.step()).toEqual({ outcome: "lost", reason: "missing" });
  });

  it("made again under our name by somebody else is not ours", async () => {
    const ours = holder("remade", "s", "AtOnce");
    await ours.step();
    await client.delete(leases, "remade", namespace);
    await client.create(leases, { metadata: { name: "remade", namespace }, spec: { holderIdentity: "s" } });
    expect(await ours.step()).toEqual({ outcome: "lost", reason: "foreign" });
  });
});

describe("while the API server is killed", () => {
  it("a Lease runs out by its holder's clock, and a reflector catches up after the restart", async () => {
    const results: LeaseResult[] = [];
    const stop = new AbortController();
    const reflector = new Reflector(client, leases, { namespace, log });
    const watching = reflector.run(stop.signal);
    const holding = holder("outage", "a", "AtOnce", { durationMs: 1_500 }).run(100, stop.signal, (result) => {
      results.push(result);
    });
    try {
      await eventually(
        () => {
          expect(results.at(-1)?.outcome).toBe("renewed");
          expect(reflector.get(namespace, "outage")).toBeDefined();
        },
        { deadlineMs: 10_000 },
      );
      await plane.plane.apiserver.stop("SIGKILL");
      await holding;
      expect(results.at(-1)).toEqual({ outcome: "lost", reason: "expired" });
      await expect(client.get(leases, "outage", namespace)).rejects.toSatisfy(isUnreachable);
      expect(reflector.connected).toBe(false);
      expect(reflector.get(namespace, "outage")).toBeDefined();

      await plane.plane.apiserver.start();
      await plane.plane.ready(60_000);
      await client.delete(leases, "outage", namespace);
      await client.create(leases, { metadata: { name: "after", namespace }, spec: {} });
      await eventually(
        () => {
          expect(reflector.get(namespace, "outage")).toBeUndefined();
          expect(reflector.get(namespace, "after")).toBeDefined();
          expect(reflector.connected).toBe(true);
        },
        { deadlineMs: 20_000 },
      );
    } finally {
      stop.abort();
      await Promise.all([watching, holding]);
    }
  });
});
