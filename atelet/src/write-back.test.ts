import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@substrate/lib/log.ts";
import { Registry } from "prom-client";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type CgroupMemory } from "./cgroups/cgroups.ts";
import { MemoryLedger } from "./ledger/ledger.ts";
import { createMemoryMetrics } from "./memory-metrics.ts";
import { Troubles } from "./troubles.ts";
import { nodeWriteBack } from "./write-back.ts";

let dir: string;
let path: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "write-back-"));
  path = join(dir, "pages.img");
  await writeFile(path, "x".repeat(50));
});
afterEach(() => rm(dir, { recursive: true }));

/** A node of 100 bytes whose disk takes nothing. */
function broken(pod: Partial<CgroupMemory> = {}) {
  const registry = new Registry();
  const ledger = new MemoryLedger({ limitBytes: 100, reserveBytes: 0 });
  const metrics = createMemoryMetrics(registry, {
    ledger,
    unwritten: () => Promise.resolve({ dirtyBytes: 0, writebackBytes: 0 }),
    heldUnlinkedBytes: () => Promise.resolve(0),
  });
  const unused = { usageBytes: 0, cleanCacheBytes: 0, shmemBytes: 0, dirtyBytes: 0, writebackBytes: 0 };
  const troubles = new Troubles();
  const log = createLogger("test", "crit");
  log.silent = true;
  const writeBack = nodeWriteBack({
    ledger,
    cgroups: { pod: () => Promise.resolve({ limitBytes: 100, limited: true, ...unused, ...pod }) },
    pageCache: {
      inspect: () => Promise.resolve({ cachedPages: 1, dirtyPages: 1, writebackPages: 0 }),
      writeOut: () => Promise.resolve(true),
      evict: () => Promise.resolve("not clean"),
    },
    metrics,
    troubles,
    log,
    boundMs: 40,
    signal: new AbortController().signal,
  });
  /** What one loan, and the wish to drop its file, have left in the metrics. */
  const counted = async (): Promise<Record<string, number>> => {
    const loan = ledger.take(50, 100);
    if (loan === undefined) throw new Error("nothing was lent");
    expect(await writeBack.follow([path], loan)).toBe("gave up");
    await writeBack.dropIfTight(path);
    const text = await registry.metrics();
    const of = (name: string): number => Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1] ?? 0);
    return {
      flushes: of("substrate_ledger_forced_flushes_total"),
      overdue: of("substrate_ledger_overdue_loans_total"),
      evictions: of('substrate_ledger_evictions_total\\{outcome="not_clean"\\}'),
    };
  };
  return { ledger, troubles, counted };
}

it("R3, R15, R25: with room nothing is written out; a loan that is overdue is a metric, and an Event of the node", async () => {
  const { counted, troubles, ledger } = broken();
  expect(await counted()).toEqual({ flushes: 0, overdue: 1, evictions: 0 });
  expect(troubles.list()).toMatchObject([{ reason: "SnapshotNotOnDisk", count: 1n }]);
  expect(troubles.list()[0]?.message).toContain(path);
  expect(ledger.state().lentBytes).toBe(0);
});

it("R3, R4, R25: it is written out, and dropped, if the pod is full, but not if it is full of clean page cache", async () => {
  const full = { usageBytes: 90 };
  expect(await broken({ ...full, dirtyBytes: 90 }).counted()).toEqual({ flushes: 1, overdue: 1, evictions: 1 });
  expect(await broken({ ...full, cleanCacheBytes: 80 }).counted()).toEqual({ flushes: 0, overdue: 1, evictions: 0 });
});

it("R3, R25: it is written out if somebody waits for the memory", async () => {
  const { counted, ledger } = broken();
  ledger.adopt(30);
  const counting = counted();
  const placed = ledger.place(60, { deadlineMs: 5000 });
  expect(await counting).toMatchObject({ flushes: 1 });
  (await placed).free();
});
