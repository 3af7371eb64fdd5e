import { MemoryLedger } from "@substrate/atelet/ledger/ledger.ts";
import { createDiskMetrics } from "@substrate/atelet/disk-metrics.ts";
import { createMemoryMetrics } from "@substrate/atelet/memory-metrics.ts";
import { createAteletMetrics } from "@substrate/atelet/metrics.ts";
import { createWarmMetrics } from "@substrate/atelet/warm/warm-metrics.ts";
import { OperatorMetrics } from "@substrate/operator/metrics.ts";
import { RouterMetrics } from "@substrate/router/metrics.ts";
import { exportExpiry } from "@substrate/lib/rpc/expiry.ts";
import { Registry } from "prom-client";
import { expect, it } from "vitest";
import { plain, referencePage, tableRows } from "./tables.ts";

function everyPart(registry: Registry): void {
  exportExpiry({ expiresMs: 0 }, registry);
}

function operator(registry: Registry): void {
  new OperatorMetrics(registry);
}

function atelet(registry: Registry): void {
  createAteletMetrics(registry, { running: () => 0, pending: () => 0, parked: () => 0 });
  createMemoryMetrics(registry, {
    ledger: new MemoryLedger({ limitBytes: 1, reserveBytes: 0 }),
    unwritten: () => Promise.resolve({ dirtyBytes: 0, writebackBytes: 0 }),
    heldUnlinkedBytes: () => Promise.resolve(0),
  });
  createWarmMetrics(registry, () => 0);
  createDiskMetrics(registry, {
    state: () =>
      Promise.resolve({ sizeBytes: 1, freeBytes: 1, floorBytes: 0, claimedBytes: 0, quotaBytes: 1, tight: undefined }),
    localBytes: () => undefined,
  });
}

function router(registry: Registry): void {
  new RouterMetrics(registry).watch(registry, { held: () => 0, open: () => 0, attached: () => 0 });
}

/** prom-client keeps the names of labels on the metric, outside its types. */
function labelsOf(metric: object): string[] {
  return "labelNames" in metric && Array.isArray(metric.labelNames) ? metric.labelNames.map(String).sort() : [];
}

it.each([
  { part: "Every part", create: everyPart },
  { part: "Operator", create: operator },
  { part: "Atelet", create: atelet },
  { part: "Router", create: router },
])("docs/reference/metrics.md has every metric of the $part with type and labels, and no other", async (options) => {
  const registry = new Registry();
  options.create(registry);
  const types = new Map((await registry.getMetricsAsJSON()).map(({ name, type }) => [name, String(type)]));
  const inCode = registry.getMetricsAsArray().map((metric) => ({
    name: metric.name,
    type: types.get(metric.name),
    labels: labelsOf(metric),
  }));
  const documented = tableRows(referencePage("metrics.md"), options.part).map(([name, type, labels]) => ({
    name: plain(name),
    type,
    labels: (labels ?? "").split(", ").filter(Boolean).map(plain).sort(),
  }));
  const byName = (a: { name: string }, b: { name: string }) => a.name.localeCompare(b.name);
  expect(documented.sort(byName)).toEqual(inCode.sort(byName));
});

it("every metric's unit is in the table and, for seconds and bytes, in its name", () => {
  for (const [name, , , unit] of tableRows(referencePage("metrics.md"))) {
    expect(unit, name).not.toBe("");
    if (unit === "seconds" || unit === "bytes") expect(plain(name)).toMatch(new RegExp(`_${unit}(_total)?$`));
  }
});
