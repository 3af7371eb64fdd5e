import { type Actor, type Snapshot, type SnapshotStatus, type Template } from "@substrate/crds/index.ts";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { describe, expect, it } from "vitest";
import { Origins, sourceProblem } from "./origins.ts";

const apiVersion = "substrate.run/v1alpha1";

function actor(source?: string, changes: Partial<Actor> = {}): Actor {
  return {
    apiVersion,
    kind: "Actor",
    metadata: { name: "fork", namespace: "ns", uid: "a1" },
    spec: {
      templateRef: { name: "app" },
      state: "OnDemand",
      ...(source === undefined ? {} : { source: { snapshotRef: { name: source } } }),
    },
    ...changes,
  };
}

function snapshot(status: SnapshotStatus, changes: Partial<Snapshot> = {}): Snapshot {
  return {
    apiVersion,
    kind: "Snapshot",
    metadata: { name: "kept", namespace: "ns", uid: "s1" },
    spec: { actorRef: { name: "counter" }, tag: "kept" },
    status,
    ...changes,
  };
}

const completed: SnapshotStatus = {
  storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED",
  templateName: "app",
  revision: "r1",
  store: "default",
};
const golden = snapshot(completed, { spec: { templateRef: { name: "app", revision: "r2" } } });
const template = {
  metadata: { name: "app", namespace: "ns", uid: "t1" },
  status: { revision: "r2", goldenSnapshot: "kept" },
} as Template;

/** Origins over an API server with this Snapshot only. */
function originsWith(known: Snapshot | undefined): Origins {
  const client = {
    get: ({ kind }: { kind: string }) =>
      Promise.resolve(kind === "Namespace" ? { metadata: { name: "ns", uid: "n1" } } : known),
  };
  return new Origins(client as unknown as KubeClient, "c1");
}

describe("sourceProblem", () => {
  it.each([
    ["no object", undefined, "SNAPSHOT_MISSING", /Snapshot ns\/kept, does not exist/],
    [
      "one that is being deleted",
      snapshot(completed, { metadata: { name: "kept", deletionTimestamp: "2026-01-01T00:00:00Z" } }),
      "SNAPSHOT_MISSING",
      /was deleted before the actor's first start/,
    ],
    ["a new tag", snapshot({}), "SNAPSHOT_NOT_READY", /is not completed yet$/],
    [
      "a failed tag",
      snapshot({ storageState: "SNAPSHOT_STORAGE_STATE_FAILED" }),
      "SNAPSHOT_UNUSABLE",
      /could not be made/,
    ],
    [
      "a generation",
      snapshot(completed, { spec: { actorRef: { name: "counter" }, generation: 3 } }),
      "SNAPSHOT_UNUSABLE",
      /is a generation of Actor counter .* keep it as a tag/,
    ],
    ["a golden one", golden, "SNAPSHOT_UNUSABLE", /new actors start by themselves: leave spec.source out/],
    [
      "another Template's",
      snapshot({ ...completed, templateName: "other" }),
      "SNAPSHOT_UNUSABLE",
      /is of Template other, the actor's is app/,
    ],
  ])("names %s", (_, known, code, message) => {
    const problem = sourceProblem(actor("kept"), known);
    expect(problem?.code).toBe(code);
    expect(problem?.message).toMatch(message);
    expect(problem?.retryAfterMs !== undefined).toBe(code === "SNAPSHOT_NOT_READY");
  });

  it("finds none in a completed tag of the same Template", () => {
    expect(sourceProblem(actor("kept"), snapshot(completed))).toBeUndefined();
  });
});

describe("Origins", () => {
  const prefix = { namespaceUid: "n1", uid: "s1", name: "ns/kept", store: "default", clusterUid: "c1" };

  it("is the tag of a fork, with its revision, until the fork has a generation", async () => {
    const origins = originsWith(snapshot(completed));
    expect(await origins.of(actor("kept"), template)).toEqual({ origin: { prefix, golden: false }, revision: "r1" });
    expect(await origins.of(actor("kept", { status: { generation: 1 } }), template)).toBeUndefined();
  });

  it("is the golden snapshot of the Template's revision for an actor without source and environment", async () => {
    const origins = originsWith(golden);
    expect(await origins.of(actor(), template)).toEqual({ origin: { prefix, golden: true }, revision: "r2" });
    const withEnv = actor();
    withEnv.spec.env = [{ name: "A", value: "1" }];
    expect(await origins.of(withEnv, template)).toBeUndefined();
  });

  it.each([
    ["gone", undefined],
    ["being deleted", { ...golden, metadata: { ...golden.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } }],
    ["of another revision", snapshot(completed, { spec: { templateRef: { name: "app", revision: "r1" } } })],
    [
      "not completed",
      snapshot({ ...completed, storageState: "SNAPSHOT_STORAGE_STATE_PENDING" }, { spec: golden.spec }),
    ],
  ])("is nothing when the golden snapshot is %s: the actor starts cold", async (_, known) => {
    expect(await originsWith(known).of(actor(), template)).toBeUndefined();
  });
});
