import { expect, it } from "vitest";
import { type Actor } from "@substrate/crds/index.ts";
import {
  type ActorReport,
  ActorState,
  OperationResult,
  OperationType,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { KeepRunning } from "./keep-running.ts";
import { type OperationRecord } from "./operation-record.ts";

const actor = (state: Actor["spec"]["state"]) =>
  ({ metadata: { name: "a", namespace: "ns", uid: "u" }, spec: { templateRef: { name: "t" }, state } }) as Actor;
const report = (changes: Partial<ActorReport>) =>
  ({ state: ActorState.ACTOR_STATE_CRASHED, generations: [], ...changes }) as ActorReport;

/** With a clock of its own, and starts that end when they are told to. */
function keeper() {
  const clock = { nowMs: 1_000 };
  const starts: OperationRecord[] = [];
  const resume = (): OperationRecord => {
    const record: OperationRecord = {
      id: String(starts.length),
      type: OperationType.OPERATION_TYPE_RESUME,
      result: OperationResult.OPERATION_RESULT_RUNNING,
      reason: "",
      message: "",
      startUnixMs: Date.now(),
      endUnixMs: undefined,
    };
    starts.push(record);
    return record;
  };
  const end = (result: OperationResult, agoMs = 0): void => {
    const last = starts.at(-1);
    if (last !== undefined) Object.assign(last, { result, endUnixMs: Date.now() - agoMs });
  };
  return { clock, starts, end, keep: new KeepRunning({ resume }, () => clock.nowMs) };
}

it("starts at once, waits for the start's end, then rests longer after each short life", () => {
  const { clock, end, keep, starts } = keeper();
  const pauses: (number | undefined)[] = [];
  for (let life = 0; life < 9; life++) {
    expect(keep.ensure(actor("Running"), report({}))).toBeUndefined();
    expect(starts).toHaveLength(life + 1);
    expect(keep.ensure(actor("Running"), report({}))).toBeUndefined();
    end(life % 2 === 0 ? OperationResult.OPERATION_RESULT_SUCCEEDED : OperationResult.OPERATION_RESULT_FAILED);
    const pauseMs = keep.ensure(actor("Running"), report({}));
    pauses.push(pauseMs);
    // looking again changes nothing
    clock.nowMs += 1;
    expect(keep.ensure(actor("Running"), report({}))).toBe((pauseMs ?? 0) - 1);
    clock.nowMs += pauseMs ?? 0;
  }
  expect(pauses).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60].map((seconds) => seconds * 1_000));
  // a long life is no failure
  keep.ensure(actor("Running"), report({}));
  end(OperationResult.OPERATION_RESULT_SUCCEEDED, 61_000);
  keep.ensure(actor("Running"), report({}));
  expect(starts).toHaveLength(11);
});

it("leaves alone what runs, what loops, and what need not run", () => {
  const { keep, starts } = keeper();
  keep.ensure(actor("Running"), report({ state: ActorState.ACTOR_STATE_RUNNING }));
  keep.ensure(actor("Running"), report({ crashLoop: { generation: 1n, message: "", sinceUnixMs: 1n } }));
  keep.ensure(actor("Running"), report({ damage: "generation 1 is lost" }));
  keep.ensure(actor("OnDemand"), report({}));
  expect(starts).toEqual([]);
});
