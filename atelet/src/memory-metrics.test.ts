import { Registry } from "prom-client";
import { expect, it } from "vitest";
import { MemoryLedger } from "./ledger/ledger.ts";
import { createMemoryMetrics, type MemoryMetrics } from "./memory-metrics.ts";

it("R25: every loan, wait, forced flush, eviction and held byte is in the metrics", async () => {
  const registry = new Registry();
  const told: { metrics: MemoryMetrics | undefined } = { metrics: undefined };
  const ledger = new MemoryLedger({ limitBytes: 100, reserveBytes: 10, observe: (one) => told.metrics?.ledger(one) });
  const metrics = createMemoryMetrics(registry, {
    ledger,
    unwritten: () => Promise.resolve({ dirtyBytes: 7, writebackBytes: 8 }),
    heldUnlinkedBytes: () => Promise.resolve(9),
  });
  told.metrics = metrics;
  ledger.take(20, 100);
  ledger.take(1000, 2000);
  await ledger.place(30, { deadlineMs: 1000 });
  await expect(ledger.place(1000, { deadlineMs: 1000 })).rejects.toThrow();
  ledger.transfer(3);
  ledger.warm(10, () => undefined);
  ledger.inherit(40);
  ledger.place(20, { deadlineMs: 1000 }).catch(() => undefined);
  metrics.evicted("not clean");
  metrics.overdueLoans.inc();
  metrics.forcedFlushes.inc();
  const lines = new Set((await registry.metrics()).split("\n"));
  const series = {
    'substrate_ledger_bytes{kind="limit"}': 100,
    'substrate_ledger_bytes{kind="reserve"}': 10,
    'substrate_ledger_bytes{kind="booked"}': 30,
    'substrate_ledger_bytes{kind="lent"}': 60,
    'substrate_ledger_bytes{kind="warm"}': 10,
    'substrate_ledger_bytes{kind="transfers"}': 3,
    'substrate_ledger_bytes{kind="unbooked"}': -10,
    substrate_ledger_waiting_placements: 1,
    'substrate_ledger_unwritten_bytes{state="dirty"}': 7,
    'substrate_ledger_unwritten_bytes{state="writeback"}': 8,
    substrate_ledger_held_unlinked_bytes: 9,
    'substrate_ledger_loans_total{outcome="lent"}': 1,
    'substrate_ledger_loans_total{outcome="refused"}': 1,
    'substrate_ledger_wait_seconds_count{outcome="placed"}': 1,
    'substrate_ledger_wait_seconds_count{outcome="no_room"}': 1,
    substrate_ledger_warm_asked_back_total: 1,
    'substrate_ledger_evictions_total{outcome="not_clean"}': 1,
    substrate_ledger_overdue_loans_total: 1,
    substrate_ledger_forced_flushes_total: 1,
  };
  expect(Object.entries(series).filter(([name, value]) => !lines.has(`${name} ${value}`))).toEqual([]);
});
