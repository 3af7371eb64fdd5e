import { describe, expect, test } from "vitest";
import { nearest, parseStatus } from "./refusal.ts";

describe("nearest names", () => {
  const names = ["counter", "counter-2", "notebook", "agent"];

  test.each([
    ["countr", ["counter"]],
    ["conuter", ["counter"]],
    ["cou", ["counter", "counter-2"]],
    ["notbook", ["notebook"]],
    ["something-else", []],
    ["agnet", []],
  ])("%s", (name, expected) => {
    expect(nearest(name, names)).toEqual(expected);
  });
});

test("only a Status is taken for one", () => {
  expect(parseStatus("404 page not found\n")).toBeUndefined();
  expect(parseStatus('{"kind":"Actor"}')).toBeUndefined();
  expect(parseStatus('{"kind":"Status","message":"no"}')?.message).toBe("no");
});
