import { type Logger } from "@substrate/lib/log.ts";
import { type Cgroups, freeBytes } from "./cgroups/cgroups.ts";
import { type Ledger } from "./ledger/contract.ts";
import { type MemoryMetrics } from "./memory-metrics.ts";
import { type Troubles } from "./troubles.ts";
import { type AsyncPageCache } from "./writeback/cache-worker.ts";
import { WriteBack, type WriteBackOptions } from "./writeback/writeback.ts";

export interface NodeWriteBackOptions extends Pick<WriteBackOptions, "boundMs"> {
  ledger: Pick<Ledger, "tight">;
  cgroups: Pick<Cgroups, "pod">;
  pageCache: AsyncPageCache;
  metrics: Pick<MemoryMetrics, "evicted" | "forcedFlushes" | "overdueLoans">;
  troubles: Troubles;
  log: Logger;
  signal: AbortSignal;
}

/** The write-back of a node's snapshots: what the ledger and the pod's numbers ask of it, and who hears of it (R3, R15, R25). */
export function nodeWriteBack(options: NodeWriteBackOptions): WriteBack {
  const { ledger, cgroups, pageCache, metrics, troubles, ...rest } = options;
  return new WriteBack({
    ...rest,
    cache: pageCache,
    tight: async (bytes) => ledger.tight(bytes, await freeBytes(await cgroups.pod())),
    evicted: (outcome) => {
      metrics.evicted(outcome);
    },
    flushed: () => {
      metrics.forcedFlushes.inc();
    },
    gaveUp: (message) => {
      metrics.overdueLoans.inc();
      troubles.note("SnapshotNotOnDisk", message);
    },
  });
}
