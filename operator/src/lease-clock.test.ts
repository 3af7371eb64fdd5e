import { expect, it } from "vitest";
import { LeaseClock, type WatchState } from "./lease-clock.ts";

it("counts from the newest renewal that was seen, and anew at a start and after an outage of the API server", () => {
  let now = 1_000;
  const watch: WatchState = { connectedSinceMs: 500 };
  const clock = new LeaseClock(watch, () => now);
  now = 11_000;
  // never heard of: since the start
  expect(clock.silentMs("a")).toBe(10_000);
  clock.observe("a", "r1");
  now = 31_000;
  // the same Lease once more, as after a list, is no renewal; and none is none
  clock.observe("a", "r1");
  clock.observe("a", undefined);
  expect(clock.silentMs("a")).toBe(20_000);
  expect(clock.sinceRenewalMs("a")).toBe(20_000);
  clock.observe("a", "r2");
  expect(clock.silentMs("a")).toBe(0);
  now = 80_000;
  expect(clock.silentMs("a")).toBe(49_000);
  watch.connectedSinceMs = undefined;
  expect(clock.silentMs("a")).toBe(0);
  watch.connectedSinceMs = 90_000;
  now = 95_000;
  expect(clock.silentMs("a")).toBe(5_000);
  now = 200_000;
  clock.restart();
  now = 201_000;
  expect(clock.silentMs("a")).toBe(1_000);
  expect(clock.sinceRenewalMs("a")).toBeUndefined();
});
