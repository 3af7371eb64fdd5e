import { describe, expect, it } from "vitest";
import { type LastOperation } from "@substrate/crds/index.ts";
import { type Operation } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type OperationRecord, publishedOperation } from "./operation-record.ts";

const now = new Date(100_000);

function own(id: string, startUnixMs: number, endUnixMs?: number): OperationRecord {
  return {
    id,
    type: "OPERATION_TYPE_SUSPEND",
    result: endUnixMs === undefined ? "OPERATION_RESULT_RUNNING" : "OPERATION_RESULT_FAILED",
    reason: "",
    message: "",
    startUnixMs,
    endUnixMs,
  };
}

function reported(id: string, startUnixMs: number, endUnixMs = 0): Operation {
  return {
    id,
    type: "OPERATION_TYPE_RESUME",
    result: endUnixMs === 0 ? "OPERATION_RESULT_RUNNING" : "OPERATION_RESULT_SUCCEEDED",
    reason: "",
    message: "",
    startUnixMs: BigInt(startUnixMs),
    endUnixMs: BigInt(endUnixMs),
  };
}

function shown(id: string, startMs: number, endMs?: number): LastOperation {
  const endTime = endMs === undefined ? {} : { endTime: new Date(endMs).toISOString() };
  return { id, type: "Suspend", result: "Succeeded", startTime: new Date(startMs).toISOString(), ...endTime };
}

describe("publishedOperation", () => {
  it("is nothing before the first", () => {
    expect(publishedOperation([], undefined, undefined, now)).toBeUndefined();
  });

  it("shows finished ones of the operator one by one, though a newer one has begun", () => {
    const list = [own("a", 1_000, 2_000), own("b", 3_000, 4_000)];
    const node = reported("c", 5_000, 6_000);
    expect(publishedOperation(list, node, undefined, now)).toMatchObject({ id: "a", result: "Failed" });
    expect(publishedOperation(list.slice(1), node, shown("a", 1_000, 2_000), now)).toMatchObject({ id: "b" });
    expect(publishedOperation([], node, shown("b", 3_000, 4_000), now)).toMatchObject({ id: "c", type: "Resume" });
  });

  it("takes the node's result while the answer to the call is on its way", () => {
    expect(publishedOperation([own("a", 1_000)], reported("a", 1_001, 2_000), undefined, now)).toMatchObject({
      id: "a",
      result: "Succeeded",
    });
  });

  it("does not write an end twice because two clocks differ", () => {
    const before = shown("a", 1_000, 2_000);
    expect(publishedOperation([own("a", 1_000, 2_050)], reported("a", 1_010, 2_010), before, now)).toEqual(before);
  });

  it("does not mention what has only begun", () => {
    const before = shown("a", 1_000, 2_000);
    expect(publishedOperation([own("b", 99_900)], reported("c", 99_950), before, now)).toEqual(before);
    expect(publishedOperation([own("b", 98_000)], undefined, before, now)).toMatchObject({
      id: "b",
      result: "Running",
    });
  });

  it("keeps a newer one in the status over an older one of a node", () => {
    const before = shown("b", 5_000, 6_000);
    expect(publishedOperation([], reported("a", 1_000, 2_000), before, now)).toEqual(before);
  });
});
