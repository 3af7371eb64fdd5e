import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { type Unwritten } from "./cgroups/cgroups.ts";
import { type Ledger, type LedgerEvent } from "./ledger/contract.ts";
import { type Eviction } from "./writeback/page-cache.ts";

/** From a loan that comes back at once to the deadline of a wake. */
const WAIT_BUCKETS = [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** R25: every loan, wait, forced flush, eviction and held byte. */
export interface MemoryMetrics {
  ledger(event: LedgerEvent): void;
  overdueLoans: Counter;
  forcedFlushes: Counter;
  evicted(outcome: Eviction): void;
}

/** What is asked at each look. */
export interface MemorySources {
  ledger: Pick<Ledger, "state">;
  /** Of snapshots, what is not on the disk yet. */
  unwritten(): Promise<Unwritten>;
  /** Of deleted files below the node folder that a process still has open. */
  heldUnlinkedBytes(): Promise<number>;
}

export function createMemoryMetrics(registry: Registry, sources: MemorySources): MemoryMetrics {
  const registers = [registry];
  const { ledger } = sources;
  const bytes = new Gauge({
    name: "substrate_ledger_bytes",
    help: "The pod's memory by what it is promised to.",
    labelNames: ["kind"],
    registers,
    collect() {
      const state = ledger.state();
      bytes.set({ kind: "limit" }, state.limitBytes);
      bytes.set({ kind: "reserve" }, state.reserveBytes);
      bytes.set({ kind: "booked" }, state.bookedBytes);
      bytes.set({ kind: "lent" }, state.lentBytes);
      bytes.set({ kind: "warm" }, state.warmBytes);
      bytes.set({ kind: "transfers" }, state.transferBytes);
      bytes.set({ kind: "unbooked" }, state.unbookedBytes);
    },
  });
  const waiting = new Gauge({
    name: "substrate_ledger_waiting_placements",
    help: "Placements that wait for room.",
    registers,
    collect() {
      waiting.set(ledger.state().waiting);
    },
  });
  const unwritten = new Gauge({
    name: "substrate_ledger_unwritten_bytes",
    help: "Of snapshots, what is in the page cache and not on the disk.",
    labelNames: ["state"],
    registers,
    async collect() {
      const { dirtyBytes, writebackBytes } = await sources.unwritten();
      unwritten.set({ state: "dirty" }, dirtyBytes);
      unwritten.set({ state: "writeback" }, writebackBytes);
    },
  });
  const held = new Gauge({
    name: "substrate_ledger_held_unlinked_bytes",
    help: "Disk space of deleted files that a process still has open.",
    registers,
    async collect() {
      held.set(await sources.heldUnlinkedBytes());
    },
  });
  const loans = new Counter({
    name: "substrate_ledger_loans_total",
    help: "Memory asked for snapshots, by whether it was lent.",
    labelNames: ["outcome"],
    registers,
  });
  const waits = new Histogram({
    name: "substrate_ledger_wait_seconds",
    help: "How long placements waited for room.",
    labelNames: ["outcome"],
    buckets: WAIT_BUCKETS,
    registers,
  });
  const askedBack = new Counter({
    name: "substrate_ledger_warm_asked_back_total",
    help: "Warm sandboxes whose memory an actor or a snapshot needed.",
    registers,
  });
  const evictions = new Counter({
    name: "substrate_ledger_evictions_total",
    help: "Snapshot files that were to be dropped from the page cache, by what became of it.",
    labelNames: ["outcome"],
    registers,
  });
  return {
    ledger(event) {
      if (event.kind === "lent") loans.inc({ outcome: "lent" });
      else if (event.kind === "loan-refused") loans.inc({ outcome: "refused" });
      else if (event.kind === "warm-asked-back") askedBack.inc();
      else if (event.kind === "placed") waits.observe({ outcome: "placed" }, event.waitedMs / 1000);
      else if (event.kind === "no-room") waits.observe({ outcome: "no_room" }, event.waitedMs / 1000);
    },
    evicted(outcome) {
      evictions.inc({ outcome: outcome.replace(" ", "_") });
    },
    overdueLoans: new Counter({
      name: "substrate_ledger_overdue_loans_total",
      help: "Loans that were taken back though their files were not on disk within the bound: the disk is slow or broken.",
      registers,
    }),
    forcedFlushes: new Counter({
      name: "substrate_ledger_forced_flushes_total",
      help: "Snapshot files whose write-out was started because memory was tight.",
      registers,
    }),
  };
}
