import { describe, expect, it } from "vitest";
import { type Actor } from "@substrate/crds/index.ts";
import {
  type ActorReport,
  ActorState,
  Fidelity,
  type Generation,
  StorageState,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { isBehindFloor, tieOf } from "./ties.ts";

const actor = (status: Actor["status"] = {}) => ({ metadata: { name: "a", uid: "u" }, status }) as Actor;

function generation(number: bigint, revision: string, changes: Partial<Generation> = {}): Generation {
  const storageState = StorageState.STORAGE_STATE_COMPLETED;
  return {
    generation: number,
    revision,
    storageState,
    local: true,
    fidelity: Fidelity.FIDELITY_MEMORY,
    ...changes,
  } as Generation;
}

function report(generations: Generation[], changes: Partial<ActorReport> = {}): ActorReport {
  const state = ActorState.ACTOR_STATE_SUSPENDED;
  return { state, revision: "r9", floor: 0n, generations, ...changes } as ActorReport;
}

describe("tieOf", () => {
  it("is what runs, whatever was saved before", () => {
    const running = report([generation(1n, "r1")], { state: ActorState.ACTOR_STATE_RUNNING });
    expect(tieOf(actor(), running)).toEqual({ kind: "running", revision: "r9" });
  });

  it("is the newest generation that can be used, not what the node was told last", () => {
    const lost = generation(3n, "r3", { storageState: StorageState.STORAGE_STATE_LOST });
    const gone = generation(2n, "r2", { storageState: StorageState.STORAGE_STATE_PENDING, local: false });
    expect(tieOf(actor(), report([lost, gone, generation(1n, "r1")]))).toEqual({
      kind: "memory",
      revision: "r1",
      generation: 1,
    });
  });

  it("binds files less than memory", () => {
    const files = generation(2n, "r2", { fidelity: Fidelity.FIDELITY_DATA });
    expect(tieOf(actor(), report([files, generation(1n, "r1")]))).toMatchObject({ kind: "files", revision: "r2" });
  });

  it("is nothing after a cold start that no generation followed", () => {
    const cold = report([generation(2n, "r1")], { floor: 2n });
    expect(tieOf(actor({ generation: 2, revision: "r1" }), cold)).toEqual({ kind: "unsaved", revision: "r9" });
    expect(isBehindFloor(cold)).toBe(true);
    expect(isBehindFloor(report([generation(3n, "r9"), generation(2n, "r1")], { floor: 2n }))).toBe(false);
    expect(isBehindFloor(report([]))).toBe(false);
  });

  it("is by the status what a node that has just got the actor doesn't know yet", () => {
    const status = { generation: 4, revision: "r4" };
    const stored = { kind: "memory", revision: "r4", generation: 4 };
    expect(tieOf(actor(status), undefined)).toEqual(stored);
    expect(tieOf(actor(status), report([]))).toEqual(stored);
    expect(tieOf(actor({ revision: "r1" }), undefined)).toEqual({ kind: "none", revision: undefined });
  });
});
