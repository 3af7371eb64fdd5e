import { expect, test } from "vitest";
import { endOf, exitCodeOf } from "./exec-channels.ts";

test("exit codes travel as kubectl expects them", () => {
  expect(endOf(0)).toEqual({ status: "Success" });
  expect(endOf(3)).toMatchObject({
    reason: "NonZeroExitCode",
    details: { causes: [{ reason: "ExitCode", message: "3" }] },
  });
  for (const code of [0, 1, 137]) expect(exitCodeOf(endOf(code))).toBe(code);
  expect(exitCodeOf({ status: "Failure", message: "held" })).toBeUndefined();
});
