import { Counter, Gauge, type Registry } from "prom-client";
import { type LocalBytes } from "./disk/local-bytes.ts";
import { type DiskState, type NodeDiskOptions } from "./disk/node-disk.ts";

export interface DiskMetrics {
  removed: NodeDiskOptions["removed"];
  refused(): void;
}

/** What is asked at each look. */
export interface DiskSources {
  state(): Promise<DiskState>;
  /** As last counted. */
  localBytes(): LocalBytes | undefined;
}

export function createDiskMetrics(registry: Registry, sources: DiskSources): DiskMetrics {
  const registers = [registry];
  const space = new Gauge({
    name: "substrate_disk_bytes",
    help: "The file system of the node folder.",
    labelNames: ["kind"],
    registers,
    async collect() {
      const { sizeBytes, freeBytes, floorBytes, claimedBytes, quotaBytes } = await sources.state();
      space.set({ kind: "size" }, sizeBytes);
      space.set({ kind: "free" }, freeBytes);
      space.set({ kind: "floor" }, floorBytes);
      space.set({ kind: "claimed" }, claimedBytes);
      if (quotaBytes !== undefined) space.set({ kind: "snapshot_quota" }, quotaBytes);
    },
  });
  const tight = new Gauge({
    name: "substrate_disk_tight",
    help: "1 while space lacks though all was removed that may go.",
    registers,
    async collect() {
      tight.set((await sources.state()).tight === undefined ? 0 : 1);
    },
  });
  const local = new Gauge({
    name: "substrate_snapshot_local_bytes",
    help: "Allocated space below the node folder by what it is for.",
    labelNames: ["kind"],
    registers,
    collect() {
      for (const [kind, bytes] of Object.entries(sources.localBytes() ?? {})) local.set({ kind }, Number(bytes));
    },
  });
  const evictions = new Counter({
    name: "substrate_disk_evictions_total",
    help: "Copies that were removed from the node to make room on its disk.",
    labelNames: ["kind", "reason"],
    registers,
  });
  const evictedBytes = new Counter({
    name: "substrate_disk_evicted_bytes_total",
    help: "Space that was freed by that.",
    labelNames: ["kind", "reason"],
    registers,
  });
  const refusals = new Counter({
    name: "substrate_disk_refusals_total",
    help: "Suspends, downloads and pulls for which no room could be made.",
    registers,
  });
  return {
    removed({ kind, reason, bytes }) {
      evictions.inc({ kind, reason });
      evictedBytes.inc({ kind, reason }, bytes);
    },
    refused() {
      refusals.inc();
    },
  };
}
