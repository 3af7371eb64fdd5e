import { expect, it } from "vitest";
import { RestartBackOff } from "./restart-back-off.ts";

it("regression: a pause of a broken number of milliseconds could not be told to routers", () => {
  const backOff = new RestartBackOff(() => undefined);
  backOff.failed("it ended", undefined);
  backOff.failed("it ended", undefined);
  expect(backOff.waitMs()).toBeGreaterThan(0);
  expect(Number.isInteger(backOff.waitMs())).toBe(true);
});
