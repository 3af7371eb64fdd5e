import { afterEach, expect, it, vi } from "vitest";
import { Rest } from "./rest.ts";

afterEach(() => {
  vi.useRealTimers();
});

it("regression: what rested when the clock was put back by a day rested a day longer", () => {
  vi.useFakeTimers({ toFake: ["Date"] });
  let monotonicMs = 1_000;
  const rest = new Rest(5_000, () => monotonicMs);
  expect(rest.untilUnixMs).toBe(Date.now() + 5_000);
  vi.setSystemTime(Date.now() - 24 * 3_600_000);
  expect(rest.leftMs).toBe(5_000);
  monotonicMs += 5_000;
  expect(rest.leftMs).toBe(0);
});
