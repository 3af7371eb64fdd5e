import { describe, expect, it } from "vitest";
import { type ActorReport, type ActorState, type StorageState } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { suspendTarget } from "./suspender.ts";

function report(state: ActorState, generation?: [bigint, StorageState]): ActorReport {
  const generations =
    generation === undefined ? [] : [{ generation: generation[0], storageState: generation[1], message: "disk full" }];
  return { state, generations, crash: { message: "ended", timeUnixMs: 1n } } as unknown as ActorReport;
}

describe("suspendTarget", () => {
  it("is the next generation of what is awake", () => {
    expect(suspendTarget("ns/a", report("ACTOR_STATE_RUNNING"), "Async")).toBe(1);
    expect(suspendTarget("ns/a", report("ACTOR_STATE_RUNNING", [4n, "STORAGE_STATE_COMPLETED"]), "Sync")).toBe(5);
  });

  it("joins a suspend that is under way by naming the same", () => {
    expect(suspendTarget("ns/a", report("ACTOR_STATE_SUSPENDING", [4n, "STORAGE_STATE_COMPLETED"]), "Sync")).toBe(5);
  });

  it("is nothing for what sleeps, unless its newest generation is still to be stored", () => {
    expect(suspendTarget("ns/a", undefined, "Sync")).toBeUndefined();
    expect(suspendTarget("ns/a", report("ACTOR_STATE_SUSPENDED"), "Sync")).toBeUndefined();
    expect(
      suspendTarget("ns/a", report("ACTOR_STATE_SUSPENDED", [4n, "STORAGE_STATE_PENDING"]), "Async"),
    ).toBeUndefined();
    expect(
      suspendTarget("ns/a", report("ACTOR_STATE_SUSPENDED", [4n, "STORAGE_STATE_COMPLETED"]), "Sync"),
    ).toBeUndefined();
    expect(suspendTarget("ns/a", report("ACTOR_STATE_SUSPENDED", [4n, "STORAGE_STATE_PENDING"]), "Sync")).toBe(4);
  });

  it("names the actor and the reason where there is nothing to save", () => {
    expect(() => suspendTarget("ns/a", report("ACTOR_STATE_CRASHED"), "Async")).toThrow(
      /Actor ns\/a has crashed \(ended\)/,
    );
    expect(() => suspendTarget("ns/a", report("ACTOR_STATE_SUSPENDED", [4n, "STORAGE_STATE_FAILED"]), "Sync")).toThrow(
      /generation 4 cannot be stored: disk full/,
    );
  });
});
