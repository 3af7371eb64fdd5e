import { describe, expect, it } from "vitest";
import { type LastOperation } from "@substrate/crds/index.ts";
import { type Operation } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { hiddenForMs, type NodeWord, type OperationRecord, publishedOperation } from "./operation-record.ts";

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
    phases: [],
  };
}

/** A node whose reports are known, with this as the actor's newest operation. */
function says(operation?: Operation): NodeWord {
  return { known: true, operation };
}

function shown(id: string, startMs: number, endMs?: number): LastOperation {
  const endTime = endMs === undefined ? {} : { endTime: new Date(endMs).toISOString() };
  return { id, type: "Suspend", result: "Succeeded", startTime: new Date(startMs).toISOString(), ...endTime };
}

describe("publishedOperation", () => {
  it("is nothing before the first", () => {
    expect(publishedOperation([], says(), undefined, now)).toBeUndefined();
  });

  it("shows finished ones of the operator one by one, though a newer one has begun", () => {
    const list = [own("a", 1_000, 2_000), own("b", 3_000, 4_000)];
    const node = says(reported("c", 5_000, 6_000));
    expect(publishedOperation(list, node, undefined, now)).toMatchObject({ id: "a", result: "Failed" });
    expect(publishedOperation(list.slice(1), node, shown("a", 1_000, 2_000), now)).toMatchObject({ id: "b" });
    expect(publishedOperation([], node, shown("b", 3_000, 4_000), now)).toMatchObject({ id: "c", type: "Resume" });
  });

  it("takes the node's result while the answer to the call is on its way", () => {
    expect(publishedOperation([own("a", 1_000)], says(reported("a", 1_001, 2_000)), undefined, now)).toMatchObject({
      id: "a",
      result: "Succeeded",
    });
  });

  it("does not write an end twice because two clocks differ", () => {
    const before = shown("a", 1_000, 2_000);
    expect(publishedOperation([own("a", 1_000, 2_050)], says(reported("a", 1_010, 2_010)), before, now)).toEqual(
      before,
    );
  });

  it("does not mention what has only begun", () => {
    const before = shown("a", 1_000, 2_000);
    expect(publishedOperation([own("b", 99_900)], says(reported("c", 99_950)), before, now)).toEqual(before);
    expect(publishedOperation([own("b", 98_000)], says(), before, now)).toMatchObject({
      id: "b",
      result: "Running",
    });
  });

  it("keeps a newer one in the status over an older one of a node", () => {
    const before = shown("b", 5_000, 6_000);
    expect(publishedOperation([], says(reported("a", 1_000, 2_000)), before, now)).toEqual(before);
  });

  it("regression: an older wake's late record, and a newer one's, hid an operation that somebody waits for", () => {
    const wake = says(reported("w", 99_500, 99_800));
    expect(publishedOperation([own("s", 98_000)], wake, undefined, now)).toMatchObject({ id: "s", result: "Running" });
    expect(publishedOperation([own("s", 98_000)], wake, shown("w", 99_500, 99_800), now)).toMatchObject({ id: "s" });
  });

  it("regression: a node's failure ended an operation that is tried again there", () => {
    const failed = { ...reported("s", 1_001, 2_000), result: "OPERATION_RESULT_FAILED" } as const;
    expect(publishedOperation([own("s", 98_000)], says(failed), undefined, now)).toMatchObject({ result: "Running" });
    expect(publishedOperation([own("s", 98_000, 99_000)], says(failed), undefined, now)).toMatchObject({
      result: "Failed",
    });
  });

  it("takes what the node calls running for running, whatever time stands beside it", () => {
    const running = { ...reported("s", 1_000, 2_000), result: "OPERATION_RESULT_RUNNING" } as const;
    expect(publishedOperation([own("s", 1_000)], says(running), undefined, now)).toMatchObject({ result: "Running" });
    expect(publishedOperation([], says(running), undefined, now)).not.toHaveProperty("endTime");
  });

  it("ends what an earlier operator has begun when its node does not know of it", () => {
    const before = { ...shown("s", 1_000), result: "Running" } as const;
    expect(publishedOperation([], says(), before, now)).toMatchObject({
      id: "s",
      result: "Failed",
      reason: "SHUTTING_DOWN",
      endTime: now.toISOString(),
    });
    expect(publishedOperation([], says(reported("s", 1_001)), before, now)).toMatchObject({ result: "Running" });
    expect(publishedOperation([], { known: false, operation: undefined }, before, now)).toEqual(before);
    expect(publishedOperation([own("s", 1_000)], says(), before, now)).toMatchObject({ result: "Running" });
  });
});

describe("hiddenForMs", () => {
  it("regression: looked at in the last millisecond, an operation that runs was hidden for ever", () => {
    for (const atMs of [1_000, 1_998, 1_999, 2_000, 2_001]) {
      const at = new Date(atMs);
      const isShown = publishedOperation([own("a", 1_000)], says(), undefined, at) !== undefined;
      expect([atMs, hiddenForMs([own("a", 1_000)], at)]).toEqual([atMs, isShown ? undefined : 2_000 - atMs]);
    }
    expect(hiddenForMs([own("a", 1_000, 1_100)], new Date(1_200))).toBeUndefined();
  });
});
