import { PassThrough } from "node:stream";
import type { Actor, ActorStatus, LastOperation, SnapshotEntry } from "@substrate/crds/actor.ts";
import { describe, expect, it } from "vitest";
import { type Connection } from "./connection.ts";
import { type Asked, Follower, type Started } from "./follower.ts";
import { finish } from "./operation.ts";
import { Progress } from "./progress.ts";

const acceptedUnixMs = Date.parse("2026-05-01T10:00:00Z");

function actorWith(status: Partial<ActorStatus>): Actor {
  return {
    apiVersion: "substrate.run/v1alpha1",
    kind: "Actor",
    metadata: { name: "a", namespace: "ns", resourceVersion: "1" },
    spec: { templateRef: { name: "t" }, state: "OnDemand" },
    status: status,
  };
}

function operation(
  id: string,
  result: LastOperation["result"],
  afterMs: number,
  type: LastOperation["type"],
): LastOperation {
  return { id, type, result, startTime: new Date(acceptedUnixMs + afterMs).toISOString() };
}

function entry(generation: number, state: "PENDING" | "COMPLETED" | "FAILED"): SnapshotEntry {
  const storageState = `SNAPSHOT_STORAGE_STATE_${state}` as const;
  return { name: `a-${generation}`, generation, owner: "SNAPSHOT_OWNER_ACTOR", storageState, fidelity: "Memory" };
}

const before = actorWith({ state: "ACTOR_STATE_RUNNING", generation: 2, snapshots: [entry(2, "COMPLETED")] });
const started: Started = { id: "ours", acceptedUnixMs, before, startedAt: 0 };
const sync: Asked = { verb: "suspend", sync: true };
const ours = (result: LastOperation["result"]) => operation("ours", result, 0, "Suspend");

describe("Follower", () => {
  it("regression: a wake's late record ended a sync suspend while its generation was PENDING", () => {
    const follower = new Follower("ns/a", started, sync);
    const wake = operation("wake", "Succeeded", -800, "Resume");
    expect(follower.see(actorWith({ generation: 2, lastOperation: wake }))).toBe("unseen");
    expect(follower.see(actorWith({ generation: 3, lastOperation: wake, snapshots: [entry(3, "PENDING")] }))).toBe(
      "unseen",
    );
    const stored = { generation: 3, snapshots: [entry(3, "COMPLETED")] };
    expect(follower.see(actorWith({ ...stored, lastOperation: ours("Succeeded") }))).toBe("ended");
  });

  it("waits for the store though the operation is over, also when the actor is woken meanwhile", () => {
    const follower = new Follower("ns/a", started, sync);
    const saved = { generation: 3, snapshots: [entry(3, "PENDING")] };
    expect(follower.see(actorWith({ ...saved, lastOperation: ours("Running") }))).toBe("goes on");
    expect(follower.see(actorWith({ ...saved, lastOperation: ours("Succeeded") }))).toBe("goes on");
    const woken = operation("wake", "Succeeded", 900, "Resume");
    expect(follower.see(actorWith({ ...saved, lastOperation: woken }))).toBe("goes on");
    expect(follower.see(actorWith({ generation: 3, snapshots: [], lastOperation: woken }))).toBe("goes on");
    expect(follower.see(actorWith({ generation: 4, snapshots: [entry(4, "COMPLETED")], lastOperation: woken }))).toBe(
      "ended",
    );
  });

  it("fails when what was saved can never be stored", () => {
    const follower = new Follower("ns/a", started, sync);
    const never = { generation: 3, snapshots: [entry(3, "FAILED")], lastOperation: ours("Succeeded") };
    expect(() => follower.see(actorWith(never))).toThrow(/suspend of actor ns\/a failed/);
  });

  it("has ended when a later operation and a mark of it are there; a later one alone may be another's", () => {
    const follower = new Follower("ns/a", started, { verb: "suspend", sync: false });
    const later = operation("wake", "Succeeded", 900, "Resume");
    expect(follower.see(actorWith({ generation: 2, lastOperation: later }))).toBe("unseen");
    expect(follower.lost()).toMatchObject({ ending: "operationFailed" });
    expect(follower.see(actorWith({ generation: 2, lastOperation: { ...later, result: "Running" } }))).toBe("goes on");
    expect(follower.see(actorWith({ generation: 3, lastOperation: later }))).toBe("ended");
  });
});

describe("finish", () => {
  it("regression: waited to its timeout for an operation that was lost with its operator", async () => {
    const connection = {
      open: (_: string, { signal }: { signal: AbortSignal }) => {
        const stream = new PassThrough({ signal });
        return Promise.resolve(Object.assign(stream, { statusCode: 200 }));
      },
    } as unknown as Connection;
    const options = { verb: "suspend", sync: false, timeoutMs: 60_000, patienceMs: 20 } as const;
    const quiet = new Progress(process.stderr, "");
    const finishing = finish(connection, { namespace: "ns", name: "a" }, started, options, quiet);
    await expect(
      finishing.finally(() => {
        quiet.end();
      }),
    ).rejects.toMatchObject({
      ending: "unavailable",
      message: expect.stringMatching(
        /operation ours, but it does not appear: the operator was probably restarted/,
      ) as string,
    });
  });
});
