import { describe, expect, it } from "vitest";
import { applyChange, runscChanges } from "./runsc-source.ts";

describe("a change of runsc's source", () => {
  const change = { file: "a.go", from: "parallel = 128", to: "parallel = 2" };

  it("replaces the one place", () => {
    expect(applyChange("x\n\tparallel = 128\ny", change)).toBe("x\n\tparallel = 2\ny");
  });

  it("refuses a source that has no such place, or several", () => {
    expect(() => applyChange("parallel = 64", change)).toThrow('a.go: "parallel = 128" occurs 0 times instead of once');
    expect(() => applyChange("parallel = 128 parallel = 128", change)).toThrow("occurs 2 times");
  });

  it("keeps what follows the changed line", () => {
    for (const { from, to } of runscChanges) expect(applyChange(`a${from}b`, { file: "f", from, to })).toBe(`a${to}b`);
  });
});
