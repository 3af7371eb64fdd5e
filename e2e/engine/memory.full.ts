import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { median } from "../bench/statistics.ts";
import { type Cycles, MemoryRig, SLOW_BYTES_PER_SECOND } from "./memory.ts";
import { memorySettings } from "./settings.ts";

const { cycles } = memorySettings();
const four = ["four-1", "four-2", "four-3", "four-4"];

function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? NaN;
}

function add(all: Cycles, more: Cycles): void {
  all.suspends += more.suspends;
  all.failures.push(...more.failures);
  all.checkpointMs.push(...more.checkpointMs);
}

/** Actors at their limit and one without, in turn, in one run. */
describe(`no actor fails its own snapshot in ${cycles} cycles`, { timeout: 3_600_000 }, () => {
  let rig: MemoryRig | undefined;
  const started = (): MemoryRig => {
    if (rig === undefined) throw new Error("the cluster did not start");
    return rig;
  };
  beforeAll(async () => {
    rig = await MemoryRig.start();
    await rig.gluttons("tight", four);
    await rig.gluttons("roomy", ["roomy"]);
  }, 180_000);
  afterAll(async () => {
    await rig?.stop();
  }, 60_000);

  it.for([
    { actors: ["four-1"], disk: "fast" },
    { actors: four, disk: "fast" },
    { actors: ["four-1"], disk: "slow" },
    { actors: four, disk: "slow" },
  ])("$actors.length at once on a $disk disk", async ({ actors, disk }, { skip }) => {
    const own = started();
    if (disk === "slow") skip(own.noSlowDisk !== undefined, own.noSlowDisk);
    if (disk === "slow") own.disk.slow(SLOW_BYTES_PER_SECOND);
    const tight: Cycles = { suspends: 0, failures: [], checkpointMs: [] };
    const roomy: Cycles = { suspends: 0, failures: [], checkpointMs: [] };
    try {
      while (tight.suspends < cycles) {
        add(tight, await own.cycle(actors, 1));
        if (actors.length === 1) add(roomy, await own.cycle(["roomy"], 1));
      }
    } finally {
      if (disk === "slow") own.disk.slow(undefined);
    }
    const p50 = median(tight.checkpointMs);
    const p95 = quantile(tight.checkpointMs, 0.95);
    const figures = [`${tight.suspends} suspends`, `checkpoint p50 ${p50} ms, p95 ${p95} ms`];
    if (actors.length === 1) figures.push(`÷ without a limit ${(p50 / median(roomy.checkpointMs)).toFixed(2)}`);
    process.stdout.write(`${actors.length} actors, ${disk} disk: ${figures.join(", ")}\n`);
    expect(tight.failures).toEqual([]);
    expect(roomy.failures).toEqual([]);
  });
});
