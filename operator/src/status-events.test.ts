import { describe, expect, it } from "vitest";
import { type ActorStatus } from "@substrate/crds/index.ts";
import { statusEvents } from "./status-events.ts";

const time = "2026-01-01T00:00:00Z";

function condition(
  type: string,
  status: "True" | "False",
  reason: string,
): NonNullable<ActorStatus["conditions"]>[number] {
  return { type, status, reason, message: `${reason} text`, lastTransitionTime: time };
}

const reasons = (before: Partial<ActorStatus> | undefined, after: Partial<ActorStatus>): string[] =>
  statusEvents(before, after).map(({ reason }) => reason);

describe("statusEvents", () => {
  it("says nothing of a normal life", () => {
    const asleep: ActorStatus = { state: "ACTOR_STATE_SUSPENDED", conditions: [condition("Ready", "True", "Asleep")] };
    expect(reasons(undefined, asleep)).toEqual([]);
    expect(reasons(asleep, { ...asleep, state: "ACTOR_STATE_RUNNING" })).toEqual([]);
  });

  it("is silent of a wake that spec.state forbids, and of a choice made while the actor ran", () => {
    const lastOperation = { id: "o", type: "Resume", result: "Failed", reason: "HELD", startTime: time } as const;
    expect(reasons({}, { lastOperation })).toEqual([]);
    expect(reasons({}, { lastOperation: { ...lastOperation, reason: "OPERATION_IN_PROGRESS" } })).toEqual([]);
  });

  it("regression: every lost generation was said to be lost to a newer claim of the store's head", () => {
    const snapshots = [3, 2].map((generation) => ({
      name: `a-${generation}`,
      generation,
      owner: "SNAPSHOT_OWNER_ACTOR" as const,
      fidelity: "Memory" as const,
      storageState: "SNAPSHOT_STORAGE_STATE_LOST" as const,
    }));
    const reported = [{ generation: 3n, message: "its files on the node are damaged (memory.img)" }];
    expect(statusEvents({}, { snapshots }, reported).map(({ message }) => message)).toEqual([
      "Generation 3 is lost: its files on the node are damaged (memory.img)",
      "Generation 2 is lost",
    ]);
  });

  it("tells of a lost node once in each loss", () => {
    const lost = { conditions: [condition("Ready", "False", "NodeLost")] };
    const back = { conditions: [condition("Ready", "True", "Asleep")] };
    expect(reasons({ conditions: [condition("Ready", "False", "NodeUnavailable")] }, lost)).toEqual(["NodeLost"]);
    expect(reasons(lost, lost)).toEqual([]);
    expect(reasons(lost, back)).toEqual([]);
    expect(reasons(back, lost)).toEqual(["NodeLost"]);
    expect(reasons({}, { conditions: [condition("Scheduled", "False", "NoNode")] })).toEqual(["NoNode"]);
  });

  it("tells each crash, failure and shortfall once", () => {
    const after: ActorStatus = {
      crash: { message: "ended", time },
      lastOperation: {
        id: "o",
        type: "Resume",
        result: "Failed",
        reason: "RESTORE_FAILED",
        message: "m",
        startTime: time,
      },
      conditions: [condition("Scheduled", "False", "NoRoom"), condition("Ready", "False", "NodeUnavailable")],
      snapshots: [
        {
          name: "a-1",
          generation: 1,
          owner: "SNAPSHOT_OWNER_ACTOR",
          fidelity: "Memory",
          storageState: "SNAPSHOT_STORAGE_STATE_FAILED",
        },
      ],
    };
    expect(reasons({}, after).toSorted()).toEqual([
      "Crashed",
      "FailedWake",
      "NoRoom",
      "NodeUnavailable",
      "SnapshotFailed",
    ]);
    expect(reasons(after, after)).toEqual([]);
  });
});
