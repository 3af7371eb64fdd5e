import { loadavg } from "node:os";
import { cycles, type CyclesKeys } from "../cycles.ts";
import { burn, type BurninKeys } from "../burnin/burn.ts";
import { Samples } from "../samples.ts";
import { Ground } from "./ground.ts";
import { held, type HeldKeys } from "./held.ts";
import { type Plan, type Row, Schedule } from "./plan.ts";
import { stored, type StoredKeys } from "./stored.ts";

export interface SnapshotsResult extends HeldKeys, StoredKeys, CyclesKeys, BurninKeys {
  rounds: number;
  rows: { held: Row[]; stored: Row[]; cycles: Row[]; burnin: Row[]; loadAverages: number[]; samples: object };
}

export interface SnapshotsOptions {
  quick: boolean;
  /** Of the burn-in at the end, unless quick. */
  burninMinutes: number;
  /** Where its plots go; nowhere if undefined. */
  folder: string | undefined;
  say: (line: string) => void;
}

/** Six minutes less what the start and the end of the cluster take. */
const QUICK_MS = 300_000;
const MINUTE_MS = 60_000;

/** Everything that putting memory away and bringing it back costs, beside what it costs without the product. */
export async function snapshots({ quick, burninMinutes, folder, say }: SnapshotsOptions): Promise<SnapshotsResult> {
  const samples = new Samples();
  const schedule = quick ? new Schedule(QUICK_MS) : undefined;
  const ground = await Ground.open();
  try {
    const plan: Plan = { ground, samples, quick: schedule, say };
    const loadAverages: number[] = [];
    const section = async <T>(name: string, run: () => Promise<T>): Promise<T> => {
      loadAverages.push(loadavg()[0] ?? NaN);
      const startMs = performance.now();
      const result = await run();
      say(`${name} took ${Math.round((performance.now() - startMs) / 1000)} s`);
      return result;
    };
    const heldResult = await section("suspend and resume on the node", () => held(plan));
    const storedResult = await section("sync suspend and resume from the store", () => stored(plan));
    const cyclesResult = await section("cycles", () => cycles(plan));
    const minutes =
      schedule === undefined ? burninMinutes : Math.max(MINUTE_MS / 3, schedule.budgetMs("burn-in")) / MINUTE_MS;
    const burninResult = await section("burn-in", () =>
      burn(ground, { users: 6, minutes, probeEveryMs: quick ? 4_000 : 30_000, folder, say }),
    );
    return {
      rounds: samples.of("suspend 1000 MiB random").length,
      ...heldResult.keys,
      ...storedResult.keys,
      ...cyclesResult.keys,
      ...burninResult.keys,
      rows: {
        held: heldResult.rows,
        stored: storedResult.rows,
        cycles: cyclesResult.rows,
        burnin: burninResult.rows,
        loadAverages,
        samples,
      },
    };
  } finally {
    await ground.close();
  }
}
