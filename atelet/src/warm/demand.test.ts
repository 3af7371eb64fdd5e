import { expect, it } from "vitest";
import { Demand, FORGET_MS } from "./demand.ts";

function after(starts: readonly [program: string, atMs: number][]): Demand {
  const demand = new Demand();
  for (const [program, atMs] of starts) demand.started(program, atMs);
  return demand;
}

it("wants one for each program that was started lately", () => {
  const demand = after([
    ["a", 0],
    ["b", 10_000],
    ["a", 20_000],
  ]);
  expect(demand.wanted(20_000, 4)).toEqual(
    new Map([
      ["a", 1],
      ["b", 1],
    ]),
  );
});

it("wants as many as were started at once, within what there may be", () => {
  const burst: [string, number][] = [0, 1, 2, 3, 4, 5].map((index) => ["a", index * 100]);
  expect(after(burst).wanted(1000, 8).get("a")).toBe(6);
  expect(after(burst).wanted(1000, 4).get("a")).toBe(4);
});

it("gives what there may be to the programs that were started last", () => {
  const demand = after([
    ["old", 0],
    ["old", 1],
    ["new", 5000],
  ]);
  expect([...demand.wanted(5000, 2)]).toEqual([
    ["new", 1],
    ["old", 1],
  ]);
  expect([...demand.wanted(5000, 1)]).toEqual([["new", 1]]);
});

it("forgets a program that nobody starts, and a burst that is long ago", () => {
  const demand = after([
    ["a", 0],
    ["a", 1],
    ["a", FORGET_MS / 2],
  ]);
  expect(demand.wanted(FORGET_MS + 1, 4).get("a")).toBe(1);
  expect(demand.wanted(2 * FORGET_MS, 4).size).toBe(0);
  expect(demand.prune(2 * FORGET_MS)).toBe(false);
});
