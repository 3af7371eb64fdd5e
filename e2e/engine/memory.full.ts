import { loadavg } from "node:os";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { markdown } from "../bench/snapshots/markdown.ts";
import { median, percentile } from "../bench/statistics.ts";
import { type Cycles, MemoryRig, SLOW_BYTES_PER_SECOND } from "./memory.ts";
import { memorySettings } from "./settings.ts";

const { cycles } = memorySettings();
const four = [1, 2, 3, 4];
/** R17: no tail, and nothing paid for the limit. */
const MOST_P95_OVER_P50 = 2;
const MOST_OVER_ROOMY = 1.2;

function add(all: Cycles, more: Cycles): void {
  all.suspends += more.suspends;
  all.failures.push(...more.failures);
  all.checkpointMs.push(...more.checkpointMs);
}

interface Series {
  actors: number;
  disk: string;
  tight: Cycles;
  roomy: Cycles;
  seconds: number;
  /** At its end. */
  loadAverage: number;
}

function rowOf({ actors, disk, tight, roomy, seconds, loadAverage }: Series): string[] {
  const shares = ({ checkpointMs }: Cycles): number[] => [
    median(checkpointMs),
    ...[0.95, 1].map((share) => percentile(checkpointMs, share)),
  ];
  const [p50 = NaN, p95 = NaN] = shares(tight);
  const show = (values: readonly number[]): string => values.map((ms) => Math.round(ms)).join("/");
  return [
    ...[`${actors}`, disk, `${tight.failures.length} of ${tight.suspends}`, show(shares(tight)), show(shares(roomy))],
    ...[(p95 / p50).toFixed(2), (p50 / median(roomy.checkpointMs)).toFixed(2)],
    ...[seconds.toFixed(0), loadAverage.toFixed(1)],
  ];
}

/** Actors at their limit and as many without, in turn, in one run. */
describe(`no actor fails its own snapshot in ${cycles} cycles`, { timeout: 3_600_000 }, () => {
  let rig: MemoryRig | undefined;
  const done: Series[] = [];
  const started = (): MemoryRig => {
    if (rig === undefined) throw new Error("the cluster did not start");
    return rig;
  };
  const names = (template: "tight" | "roomy", actors: number): string[] =>
    four.slice(0, actors).map((number) => `${template}-${number}`);
  beforeAll(async () => {
    rig = await MemoryRig.start();
    await rig.gluttons("tight", names("tight", 4));
    await rig.gluttons("roomy", names("roomy", 4));
  }, 180_000);
  afterAll(async () => {
    const title = "500 MiB held, 64 MiB dirtied in each cycle; checkpoints in ms, p50/p95/largest";
    const head = [
      "actors",
      "disk",
      "failed",
      "600 MiB",
      "1,200 MiB",
      "p95 ÷ p50",
      "p50 ÷ with room",
      "s",
      "load average",
    ];
    process.stdout.write(`\n${markdown({ title, head, rows: done.map(rowOf) })}\n`);
    await rig?.stop();
  }, 60_000);

  it.for([
    { actors: 1, disk: "fast" },
    { actors: 4, disk: "fast" },
    { actors: 1, disk: "slow" },
    { actors: 4, disk: "slow" },
  ])("$actors at once on a $disk disk", async ({ actors, disk }, { skip }) => {
    const own = started();
    if (disk === "slow") skip(own.noSlowDisk !== undefined, own.noSlowDisk);
    if (disk === "slow") own.disk.slow(SLOW_BYTES_PER_SECOND);
    const tight: Cycles = { suspends: 0, failures: [], checkpointMs: [] };
    const roomy: Cycles = { suspends: 0, failures: [], checkpointMs: [] };
    const startMs = performance.now();
    try {
      for (let round = 0; round < cycles / actors; round += 1) {
        add(tight, await own.cycle(names("tight", actors), 1));
        add(roomy, await own.cycle(names("roomy", actors), 1));
      }
    } finally {
      if (disk === "slow") own.disk.slow(undefined);
    }
    const [loadAverage = NaN] = loadavg();
    done.push({ actors, disk, tight, roomy, seconds: (performance.now() - startMs) / 1000, loadAverage });
    expect(tight.failures).toEqual([]);
    expect(roomy.failures).toEqual([]);
    const p50 = median(tight.checkpointMs);
    expect(percentile(tight.checkpointMs, 0.95) / p50, "p95 ÷ p50").toBeLessThanOrEqual(MOST_P95_OVER_P50);
    expect(p50 / median(roomy.checkpointMs), "p50 ÷ p50 with room").toBeLessThanOrEqual(MOST_OVER_ROOMY);
  });
});
