import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@substrate/lib/log.ts";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { UsageWatch } from "./usage.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "usage-"));
});
afterEach(() => rm(dir, { recursive: true }));

const log = createLogger("test", "crit");
log.silent = true;

function watch(sizeLimitBytes: number) {
  const told = { crossed: 0, exceeded: [] as string[] };
  const limit = { name: "data", sizeLimitBytes };
  const usage = new UsageWatch({
    mounted: () => [{ name: "data", path: dir }],
    limits: () => [limit],
    everyMs: 5,
    crossed: () => {
      told.crossed += 1;
    },
    exceeded: (message) => told.exceeded.push(message),
    log,
  });
  return { usage, told, limit };
}

it("says when a volume crosses its limit, and that it must be stopped only when it is over it twice in a row", async () => {
  const { usage, told } = watch(2 ** 20);
  await vi.waitFor(() => {
    expect(usage.usage).toHaveLength(1);
  });
  await writeFile(join(dir, "large"), Buffer.alloc(2 ** 21, 1));
  await vi.waitFor(() => {
    expect(told.exceeded[0]).toMatch(/volume data holds 2\.\d MiB, more than its sizeLimit of 1\.0 MiB/);
  });
  expect(told.crossed).toBe(2);
  expect(usage.usage).toMatchObject([{ name: "data", limitBytes: 2 ** 20 }]);
  await rm(join(dir, "large"));
  await vi.waitFor(() => {
    expect(told.crossed).toBe(3);
  });
  await usage.stop();
});

it("a limit that was raised while the program ran was not heard of: it was stopped again by the old one", async () => {
  await writeFile(join(dir, "large"), Buffer.alloc(2 ** 21, 1));
  const { usage, told, limit } = watch(2 ** 20);
  await vi.waitFor(() => {
    expect(told.exceeded).not.toEqual([]);
  });
  limit.sizeLimitBytes = 2 ** 22;
  const stopped = told.exceeded.length;
  expect(usage.usage).toMatchObject([{ name: "data", limitBytes: 2 ** 22 }]);
  await vi.waitFor(() => {
    // a measurement later
    expect(told.crossed).toBe(1);
  });
  expect(await usage.exceedsNow()).toBeUndefined();
  expect(told.exceeded.length).toBe(stopped);
  await usage.stop();
});

it("is asked before a suspend: measures what is near its limit, and nothing else", async () => {
  await writeFile(join(dir, "large"), Buffer.alloc(2 ** 21, 1));
  const over = watch(2 ** 20);
  expect(await over.usage.exceedsNow()).toContain("volume data holds");
  await over.usage.stop();
  const unlimited = watch(0);
  expect(await unlimited.usage.exceedsNow()).toBeUndefined();
  await unlimited.usage.stop();
});
