import { describe, expect, it } from "vitest";
import { type Actor, type ActorStatus, type Template } from "@substrate/crds/index.ts";
import {
  type ActorReport,
  type OperationResult,
  type OperationType,
  StorageState,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { desiredStatus, differs, observedState } from "./actor-status.ts";
import { type ActorWorld } from "./actor-world.ts";
import { type Condition } from "@substrate/crds/index.ts";

const now = new Date("2026-05-01T10:00:00Z");

function actorWith(
  status?: ActorStatus,
  changes: { spec?: Partial<Actor["spec"]>; metadata?: Partial<Actor["metadata"]> } = {},
): Actor {
  return {
    apiVersion: "substrate.run/v1alpha1",
    kind: "Actor",
    metadata: { name: "a", namespace: "ns", uid: "u1", generation: 2, ...changes.metadata },
    spec: { templateRef: { name: "t" }, state: "OnDemand", ...changes.spec },
    ...(status === undefined ? {} : { status }),
  };
}

const template = { metadata: { name: "t" }, status: { phase: "Ready", revision: "r1" } } as Template;

function report(changes: Partial<ActorReport> = {}): ActorReport {
  return {
    actor: { uid: "u1", namespace: "ns", name: "a", namespaceUid: "n1" },
    grant: { epoch: 1n, session: "s1" },
    state: "ACTOR_STATE_SUSPENDED",
    held: false,
    generations: [],
    lastOperation: undefined,
    crash: undefined,
    lastActivityUnixMs: 0n,
    revision: "r1",
    sequence: 1n,
    envDigest: "",
    crashLoop: undefined,
    volumes: [],
    floor: 0n,
    nextStart: "anew",
    damage: "",
    ...changes,
  };
}

function generation(number: bigint, storageState: StorageState): ActorReport["generations"][number] {
  return {
    generation: number,
    epoch: 1n,
    storageState,
    local: true,
    sizeBytes: 100n,
    storedBytes: 0n,
    location: "",
    digest: "",
    revision: "r1",
    fidelity: "FIDELITY_MEMORY",
    runtime: "x",
    createdUnixMs: 0n,
    completedUnixMs: 0n,
    message: "",
    reason: "",
  };
}

function statusOf(
  changes: Partial<ActorWorld>,
): ReturnType<typeof desiredStatus> & { condition: (type: string) => Condition | undefined } {
  const seen = {
    actor: actorWith(),
    template,
    source: undefined,
    node: undefined,
    report: undefined,
    localNode: () => "node-a",
    operations: [],
    departure: undefined,
    unplaced: undefined,
    blocked: undefined,
    standing: undefined,
    now,
    ...changes,
  };
  const status = desiredStatus({ ...seen, state: changes.state ?? observedState(seen) });
  return { ...status, condition: (type) => status.conditions?.find((candidate) => candidate.type === type) };
}

const assigned: ActorStatus = { assignment: { nodeName: "node-a", epoch: 1, session: "s1" } };
const synced = { nodeName: "node-a", synced: true, unreachableMs: 0 };

describe("desiredStatus", () => {
  it("makes a new actor of a Ready Template asleep and Ready at generation 0", () => {
    const status = statusOf({});
    expect(status).toMatchObject({
      state: "ACTOR_STATE_SUSPENDED",
      generation: 0,
      revision: "r1",
      observedGeneration: 2,
    });
    expect(status.condition("Ready")).toMatchObject({ status: "True", reason: "Asleep" });
    expect(status.condition("Durable")).toMatchObject({ status: "False", reason: "NoSnapshot" });
  });

  it("keeps it PENDING until its Template is Ready, with the Template's trouble as message", () => {
    const failed = {
      metadata: { name: "t" },
      status: { phase: "Failed", conditions: [{ type: "Ready", message: "image not found" }] },
    } as Template;
    const status = statusOf({ template: failed });
    expect(status.state).toBe("ACTOR_STATE_PENDING");
    expect(status.condition("Ready")).toMatchObject({ status: "False", reason: "TemplateNotReady" });
    expect(status.condition("Ready")?.message).toMatch(/Template ns\/t is not Ready: image not found/);
    const missing = statusOf({ template: undefined }).condition("Ready");
    expect(missing).toMatchObject({ reason: "TemplateMissing" });
    // spec.templateRef cannot be changed
    expect(missing?.message).toMatch(
      /create it, or delete this Actor and make it again with the right spec.templateRef/,
    );
  });

  it("does not care for a broken newest revision once the actor has a snapshot of its own", () => {
    const failed = { metadata: { name: "t" }, status: { phase: "Failed", revision: "r2" } } as Template;
    const status = statusOf({ template: failed, actor: actorWith({ generation: 1, revision: "r1" }) });
    expect(status.condition("Ready")).toMatchObject({ status: "True" });
    expect(status.revision).toBe("r1");
  });

  it("regression: nothing said that a newer revision of the Template waits", () => {
    const message = (byItself: boolean, state: ActorWorld["state"]): string | undefined =>
      statusOf({ state, standing: { upgradeWaits: { revision: "r2", byItself } } }).condition("Ready")?.message;
    expect(message(false, "ACTOR_STATE_RUNNING")).toBe(
      'Answers requests. Revision r2 of its Template waits: suspend it, then "kubectl ate resume a --boot" takes it, without its memory',
    );
    expect(message(false, "ACTOR_STATE_SUSPENDED")).toMatch(/waits: "kubectl ate resume a --boot" takes it/);
    expect(message(true, "ACTOR_STATE_RUNNING")).toMatch(/r2 of its Template waits: its next start after a suspend/);
  });

  it("regression: the hint at EnvOutdated had a literal NAME, and did not say that a running actor is suspended first", () => {
    const changed = (state: ActorReport["state"]): string | undefined =>
      statusOf({
        actor: actorWith(assigned),
        node: synced,
        report: report({ state, envDigest: "old" }),
        standing: { envDigest: "new" },
      }).condition("EnvOutdated")?.message;
    expect(changed("ACTOR_STATE_RUNNING")).toMatch(/: kubectl ate suspend a, then kubectl ate resume a --boot$/);
    expect(changed("ACTOR_STATE_CRASHED")).toMatch(/applies it: kubectl ate resume a --boot$/);
  });

  it("never touches the assignment", () => {
    expect(statusOf({ actor: actorWith(assigned), node: synced, report: report() })).not.toHaveProperty("assignment");
  });

  it("shows a PENDING generation beside the older COMPLETED one, newest first", () => {
    const generations = [
      generation(2n, StorageState.STORAGE_STATE_PENDING),
      generation(1n, StorageState.STORAGE_STATE_COMPLETED),
    ];
    const status = statusOf({ actor: actorWith(assigned), node: synced, report: report({ generations }) });
    expect(status.generation).toBe(2);
    expect(status.snapshots).toMatchObject([
      { name: "a-2", storageState: "SNAPSHOT_STORAGE_STATE_PENDING", nodeName: "node-a", sizeBytes: 100 },
      { name: "a-1", storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED" },
    ]);
    expect(status.condition("Durable")).toMatchObject({ status: "False", reason: "Pending" });
  });

  it("does not count a generation that could not be made", () => {
    const generations = [
      generation(2n, StorageState.STORAGE_STATE_FAILED),
      generation(1n, StorageState.STORAGE_STATE_COMPLETED),
    ];
    const status = statusOf({ actor: actorWith(assigned), node: synced, report: report({ generations }) });
    expect(status.generation).toBe(1);
    expect(status.condition("Durable")).toMatchObject({ status: "False", reason: "Failed" });
  });

  it("keeps the last known state while the node is silent, and says so only when that lasts", () => {
    const before: ActorStatus = { ...assigned, state: "ACTOR_STATE_RUNNING", generation: 3 };
    const brief = statusOf({ actor: actorWith(before), node: { ...synced, synced: false, unreachableMs: 2_000 } });
    expect(brief).toMatchObject({ state: "ACTOR_STATE_RUNNING", generation: 3 });
    expect(brief.condition("Ready")).toMatchObject({ status: "True" });
    const long = statusOf({ actor: actorWith(before), node: { ...synced, synced: false, unreachableMs: 20_000 } });
    expect(long.condition("Ready")).toMatchObject({ status: "False", reason: "NodeUnavailable" });
    expect(long.state).toBe("ACTOR_STATE_RUNNING");
  });

  it("says what is lost with its node and what is not, and says it no second time when the count begins anew", () => {
    const ready = (conditions: ActorStatus["conditions"]) => conditions?.find(({ type }) => type === "Ready");
    const entry = { name: "a-3", generation: 3, owner: "SNAPSHOT_OWNER_ACTOR", fidelity: "Memory" } as const;
    const pending = { ...entry, storageState: "SNAPSHOT_STORAGE_STATE_PENDING" } as const;
    const completed = { ...entry, storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED" } as const;
    const silent = { ...synced, synced: false, unreachableMs: 60_000 };
    const node = { ...silent, lost: "node node-a, whose atelet does not answer" };
    const messageOf = (before: Partial<ActorStatus>): string | undefined => {
      const lost = statusOf({ actor: actorWith({ ...assigned, ...before }), node }).condition("Ready");
      expect(lost).toMatchObject({ status: "False", reason: "NodeLost" });
      return lost?.message;
    };
    expect(messageOf({ state: "ACTOR_STATE_SUSPENDED", snapshots: [completed] })).toBe(
      "Its node is lost: it waits for node node-a, whose atelet does not answer. Generation 3 is in the store. Nothing moves by itself: bring the node back, and it goes on there",
    );
    expect(messageOf({ state: "ACTOR_STATE_SUSPENDED", snapshots: [pending] })).toMatch("Generation 3 is only there.");
    expect(messageOf({ state: "ACTOR_STATE_RUNNING", snapshots: [completed] })).toMatch(
      "Generation 3 is in the store, and what it did since it woke is only in that node's memory.",
    );
    const { conditions = [] } = statusOf({ actor: actorWith({ ...assigned, state: "ACTOR_STATE_RUNNING" }), node });
    const lost: ActorStatus = { ...assigned, state: "ACTOR_STATE_RUNNING", conditions };
    for (const unreachableMs of [0, 2_000, 20_000]) {
      const anew = statusOf({ actor: actorWith(lost), node: { ...silent, unreachableMs, lostInMs: 9 } });
      expect(ready(anew.conditions)).toEqual(ready(conditions));
    }
    const back = statusOf({ actor: actorWith(lost), node: synced, report: report({ state: "ACTOR_STATE_RUNNING" }) });
    expect(back.condition("Ready")).toMatchObject({ status: "True", reason: "Running" });
  });

  it("says why its node is none for it any more, and what comes of that", () => {
    const scheduled = (world: Partial<ActorWorld>): string | undefined => {
      const status = statusOf({ actor: actorWith(assigned), node: synced, report: report(), ...world });
      const condition = status.condition("Scheduled");
      expect(condition).toMatchObject({ status: "True", reason: "NodeUnfit" });
      return condition?.message;
    };
    const departure = { why: "is cordoned", elsewhere: true };
    expect(scheduled({ departure })).toMatch("node-a, which is cordoned; it leaves when all that was saved of it");
    expect(scheduled({ departure, report: report({ state: "ACTOR_STATE_RUNNING" }) })).toMatch(
      "stays there while it runs",
    );
    expect(scheduled({ departure: { ...departure, elsewhere: false } })).toMatch("no other node is open to it");
  });

  it("is not Ready after a resume that failed for good, and Ready when only room was missing", () => {
    const failed = (reason: string): ActorReport =>
      report({
        lastOperation: {
          id: "o1",
          type: "OPERATION_TYPE_RESUME",
          result: "OPERATION_RESULT_FAILED",
          reason,
          message: "why",
          startUnixMs: 1n,
          endUnixMs: 2n,
          phases: [],
        },
      });
    const world = { actor: actorWith(assigned), node: synced };
    expect(statusOf({ ...world, report: failed("RESTORE_FAILED") }).condition("Ready")).toMatchObject({
      status: "False",
      reason: "RestoreFailed",
      message: "why",
    });
    expect(statusOf({ ...world, report: failed("NO_ROOM") }).condition("Ready")).toMatchObject({ status: "True" });
  });

  it("says which generation a crashed actor starts from, and shows the crash until something newer is safe", () => {
    const crash = { message: "ended with code 1", timeUnixMs: 1_777_629_600_000n };
    const generations = [generation(4n, StorageState.STORAGE_STATE_COMPLETED)];
    const world = {
      actor: actorWith({ ...assigned, crash: { message: "old", time: "2026-01-01T00:00:00Z" } }),
      node: synced,
    };
    const crashed = statusOf({
      ...world,
      report: report({ nextStart: "from generation 4", state: "ACTOR_STATE_CRASHED", crash, generations }),
    });
    expect(crashed.crash).toEqual({ message: "ended with code 1", time: "2026-05-01T10:00:00Z" });
    expect(crashed.condition("Ready")?.message).toMatch(/generation 4/);
    // started again: what was lost is no less lost
    expect(statusOf({ ...world, report: report({ generations }) }).crash?.message).toBe("old");
    const made = (storageState: StorageState) => ({
      ...generation(5n, storageState),
      createdUnixMs: BigInt(Date.parse("2026-01-02T00:00:00Z")),
    });
    const pending = [made(StorageState.STORAGE_STATE_PENDING), ...generations];
    expect(statusOf({ ...world, report: report({ generations: pending }) }).crash?.message).toBe("old");
    const safe = [made(StorageState.STORAGE_STATE_COMPLETED)];
    expect(statusOf({ ...world, report: report({ generations: safe }) })).not.toHaveProperty("crash");
  });

  it("regression: a suspend that found it asleep made an actor Ready that could not be started", () => {
    const operation = (type: "RESUME" | "SUSPEND", result: "FAILED" | "SUCCEEDED"): ActorReport["lastOperation"] => ({
      id: "o",
      type: `OPERATION_TYPE_${type}` as OperationType,
      result: `OPERATION_RESULT_${result}` as OperationResult,
      reason: result === "FAILED" ? "RESTORE_FAILED" : "",
      message: "why",
      startUnixMs: 1n,
      endUnixMs: 2n,
      phases: [],
    });
    const generations = [generation(4n, StorageState.STORAGE_STATE_COMPLETED)];
    const failed = report({ generations, lastOperation: operation("RESUME", "FAILED") });
    const first = statusOf({ actor: actorWith({ ...assigned, generation: 4 }), node: synced, report: failed });
    expect(first.condition("Ready")).toMatchObject({ status: "False", reason: "RestoreFailed" });
    const actor = actorWith({ ...assigned, generation: 4, ...(first.conditions && { conditions: first.conditions }) });
    const noOp = report({ generations, lastOperation: operation("SUSPEND", "SUCCEEDED") });
    expect(statusOf({ actor, node: synced, report: noOp }).condition("Ready")).toMatchObject({
      status: "False",
      reason: "RestoreFailed",
      message: "why",
    });
    // it was started meanwhile, and saved
    const saved = { ...noOp, generations: [generation(5n, StorageState.STORAGE_STATE_PENDING), ...generations] };
    expect(statusOf({ actor, node: synced, report: saved }).condition("Ready")?.status).toBe("True");
    // an atelet that is restarted is no news
    const away = { nodeName: "node-a", synced: false, unreachableMs: 500 };
    expect(statusOf({ actor, node: away }).condition("Ready")?.reason).toBe("RestoreFailed");
  });

  it("regression: an actor that left the node where it could not be started was called Ready", () => {
    const conditions = [
      {
        type: "Ready",
        status: "False" as const,
        reason: "SnapshotDamaged",
        message: "why",
        lastTransitionTime: "2026-01-01T00:00:00Z",
      },
    ];
    const status = { state: "ACTOR_STATE_SUSPENDED" as const, generation: 4, conditions };
    expect(statusOf({ actor: actorWith(status) }).condition("Ready")).toMatchObject({
      status: "False",
      reason: "SnapshotDamaged",
      message: "why",
    });
  });

  it("says that only a person starts it whose state is damaged, whatever it was asked since", () => {
    const damage = "generation 1 of actor default/a is lost: damaged";
    const generations = [generation(1n, StorageState.STORAGE_STATE_LOST)];
    const world = { actor: actorWith(assigned), node: synced, report: report({ damage, generations }) };
    expect(statusOf(world).condition("Ready")).toMatchObject({
      status: "False",
      reason: "SnapshotDamaged",
      message: damage,
    });
  });

  it("says what a crash loop, a changed environment and a full volume mean", () => {
    const crashLoop = { generation: 4n, message: "three short lives", sinceUnixMs: 1n };
    const volumes = [{ name: "data", usedBytes: 3n * 1024n ** 2n, limitBytes: 2n * 1024n ** 2n }];
    const world = {
      actor: actorWith(assigned),
      node: synced,
      report: report({ state: "ACTOR_STATE_CRASHED", crashLoop, volumes, envDigest: "old" }),
    };
    const status = statusOf({ ...world, standing: { envDigest: "new" } });
    expect(status.condition("Ready")).toMatchObject({
      status: "False",
      reason: "CrashLoop",
      message: "three short lives",
    });
    expect(status.condition("EnvOutdated")).toMatchObject({ status: "True", reason: "EnvChanged" });
    expect(status.condition("VolumesFull")?.message).toBe(
      "volume data holds 3.0 MiB, more than its sizeLimit of 2.0 MiB: remove files, or raise sizeLimit in spec.volumes of its Template",
    );
    expect(statusOf({ ...world, standing: { envDigest: "old" } }).condition("EnvOutdated")?.status).toBe("False");
    const trouble = { reason: "SecretMissing", message: "no Secret" } as const;
    const missing = statusOf({ ...world, report: report({ envDigest: "old" }), standing: { envTrouble: trouble } });
    expect(missing.condition("Ready")).toMatchObject({ status: "False", ...trouble });
    expect(missing.condition("EnvOutdated")).toMatchObject({ status: "Unknown", ...trouble });
    // an actor without any of these has no such conditions
    const bare = statusOf({ ...world, report: report({}), standing: { envDigest: "" } });
    expect(bare.conditions?.map(({ type }) => type)).toEqual(["Ready", "Scheduled", "Durable"]);
  });

  it("is Ready, being what was wanted, when spec.state is Suspended", () => {
    const actor = actorWith(assigned, { spec: { state: "Suspended" } });
    expect(statusOf({ actor, node: synced, report: report({ held: true }) }).condition("Ready")).toMatchObject({
      status: "True",
      reason: "Suspended",
    });
  });

  it("shows a shortfall as Scheduled=False", () => {
    const status = statusOf({ unplaced: { reason: "NoRoom", message: "needs 100 MiB" } });
    expect(status.condition("Scheduled")).toMatchObject({
      status: "False",
      reason: "NoRoom",
      message: "needs 100 MiB",
    });
  });

  it("is DELETING as soon as the object is", () => {
    const actor = actorWith(assigned, { metadata: { deletionTimestamp: "2026-05-01T00:00:00Z" } });
    expect(statusOf({ actor, node: synced, report: report() }).state).toBe("ACTOR_STATE_DELETING");
  });
});

describe("differs", () => {
  it("sees no difference in the order of keys, the assignment and the last activity", () => {
    const wanted = { state: "x", generation: 1, lastActivityTime: "2" };
    expect(differs(wanted, { generation: 1, state: "x", assignment: { epoch: 3 }, lastActivityTime: "1" })).toBe(false);
    expect(differs(wanted, { generation: 2, state: "x" })).toBe(true);
    expect(differs(wanted, undefined)).toBe(true);
  });
});
