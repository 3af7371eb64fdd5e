import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@substrate/lib/log.ts";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { WriteBack } from "./writeback.ts";

/** What was waited for; time passes only by it. */
const clock = vi.hoisted(() => ({ nowMs: 0, waited: [] as number[] }));
vi.mock("node:timers/promises", () => ({
  setTimeout: (ms: number) => {
    clock.waited.push(ms);
    clock.nowMs += ms;
    return Promise.resolve();
  },
}));

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "polling-"));
  vi.spyOn(performance, "now").mockImplementation(() => clock.nowMs);
});
afterEach(async () => {
  vi.restoreAllMocks();
  await rm(dir, { recursive: true });
});

it("R11, R15: is asked at growing pauses whether it is clean, from 25 ms to 3 s, for ten minutes", async () => {
  const path = join(dir, "pages.img");
  await writeFile(path, "x");
  const log = createLogger("test", "crit");
  log.silent = true;
  const warned = vi.spyOn(log, "warn");
  let returned = 0;
  const told: string[] = [];
  const writeBack = new WriteBack({
    cache: {
      inspect: () => Promise.resolve({ cachedPages: 1, dirtyPages: 1, writebackPages: 0 }),
      writeOut: () => Promise.resolve(true),
      evict: () => Promise.resolve("not clean"),
    },
    tight: () => Promise.resolve(false),
    log,
    flushed: () => undefined,
    evicted: () => undefined,
    gaveUp: (message) => told.push(message),
    signal: new AbortController().signal,
  });
  expect(await writeBack.follow([path], { bytes: 1, return: () => (returned += 1) })).toBe("gave up");
  expect(clock.waited.slice(0, 10)).toEqual([25, 50, 100, 200, 400, 800, 1600, 3000, 3000, 3000]);
  expect(Math.max(...clock.waited)).toBe(3000);
  expect(clock.nowMs).toBeGreaterThan(600_000);
  expect(clock.nowMs).toBeLessThanOrEqual(603_000);
  expect([returned, told.length, warned.mock.calls.length]).toEqual([1, 1, 1]);
  expect(told[0]).toContain(`${path} could not be brought to the disk within 600 s`);
});
