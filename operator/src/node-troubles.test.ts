import { expect, it } from "vitest";
import { NodeTroubles } from "./node-troubles.ts";

const trouble = (count: bigint) => ({ reason: "SnapshotNotOnDisk", message: "slow", count });
const event = { type: "Warning", reason: "SnapshotNotOnDisk", message: "slow" };

it("tells what has risen, once, and what a new boot counts from its beginning", () => {
  const troubles = new NodeTroubles();
  expect(troubles.fresh("n", { bootId: "1", troubles: [] })).toEqual([]);
  expect(troubles.fresh("n", { bootId: "1", troubles: [trouble(1n)] })).toEqual([event]);
  expect(troubles.fresh("n", { bootId: "1", troubles: [trouble(1n)] })).toEqual([]);
  expect(troubles.fresh("other", { bootId: "1", troubles: [trouble(1n)] })).toEqual([event]);
  expect(troubles.fresh("n", { bootId: "1", troubles: [trouble(3n)] })).toEqual([event]);
  expect(troubles.fresh("n", { bootId: "2", troubles: [trouble(1n)] })).toEqual([event]);
});

it("leaves reasons alone that are not in the catalogue", () => {
  const unknown = { reason: "Whatever", message: "", count: 1n };
  expect(new NodeTroubles().fresh("n", { bootId: "1", troubles: [unknown] })).toEqual([]);
});
