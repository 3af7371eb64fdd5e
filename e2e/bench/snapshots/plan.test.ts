import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { line } from "../statistics.ts";
import { Parts, rounds } from "./plan.ts";

const { signal } = new AbortController();

describe("the time of a benchmark", () => {
  it("is shared by the parts of a quick run: one that took its time leaves less to the next", async () => {
    const parts = new Parts({ quickMs: 60_000, signal, say: () => undefined });
    const given: number[] = [];
    for (const name of ["held memory", "5 % changed"] as const)
      await parts.run(name, async (endMs) => {
        given.push(endMs - performance.now());
        await delay(50);
      });
    const [first = NaN, second = NaN] = given;
    expect(first).toBeGreaterThan(0);
    expect(second / first).toBeGreaterThan(0);
    expect(second).toBeLessThan(60_000 - first);
    expect(parts.rows.map(({ part }) => part)).toEqual(["held memory", "5 % changed"]);
    const late = new Parts({ quickMs: 0, signal, say: () => undefined });
    await late.run("requests", (endMs) => {
      expect(endMs).toBeLessThanOrEqual(performance.now());
      return Promise.resolve();
    });
  });

  it("has one round at least, and none that would end after it", async () => {
    const counted = async (endMs: number, ms: number): Promise<number> => {
      let done = 0;
      await rounds({ count: 3, endMs, signal }, async () => {
        done += 1;
        await delay(ms);
      });
      return done;
    };
    expect(await counted(performance.now() - 1, 0)).toBe(1);
    expect(await counted(performance.now() + 60_000, 0)).toBe(3);
    expect(await counted(performance.now() + 60, 50)).toBe(1);
  });

  it("begins no round after it was interrupted", async () => {
    const abort = new AbortController();
    const run = rounds({ count: 2, endMs: Infinity, signal: abort.signal }, () => {
      abort.abort(new Error("interrupted"));
      return Promise.resolve();
    });
    await expect(run).rejects.toThrow("interrupted");
  });
});

it("a line of least squares", () => {
  const points = [0, 50, 1000].map((x) => ({ x, y: 3 + 2 * x }));
  expect(line(points).fixed).toBeCloseTo(3);
  expect(line(points).slope).toBeCloseTo(2);
});
