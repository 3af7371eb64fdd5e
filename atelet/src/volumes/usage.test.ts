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
  const usage = new UsageWatch({
    mounted: () => [{ name: "data", path: dir }],
    limits: [{ name: "data", sizeLimitBytes }],
    everyMs: 5,
    crossed: () => {
      told.crossed += 1;
    },
    exceeded: (message) => told.exceeded.push(message),
    log,
  });
  return { usage, told };
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
  expect(told.crossed).toBe(1);
  expect(usage.usage).toMatchObject([{ name: "data", limitBytes: 2 ** 20 }]);
  await rm(join(dir, "large"));
  await vi.waitFor(() => {
    expect(told.crossed).toBe(2);
  });
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
