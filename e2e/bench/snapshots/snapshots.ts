import { cycles, type CyclesKeys } from "../cycles.ts";
import { burn, type BurninKeys } from "../burnin/burn.ts";
import { Samples } from "../samples.ts";
import { aimsTable } from "./aims.ts";
import { Ground } from "./ground.ts";
import { held, type HeldKeys, heldMib } from "./held.ts";
import { markdown } from "./markdown.ts";
import { Parts, type PartRow, type Plan, type Row } from "./plan.ts";
import { python, type PythonKeys } from "./python.ts";
import { running, type RunningKeys } from "./running.ts";
import { type Fit, fits } from "./size-table.ts";
import { stored, type StoredKeys } from "./stored.ts";
import { tables } from "./tables.ts";
import { tight, type TightKeys } from "./tight.ts";

export interface SnapshotsResult
  extends HeldKeys, StoredKeys, PythonKeys, RunningKeys, TightKeys, CyclesKeys, BurninKeys {
  rounds: number;
  rows: {
    held: Row[];
    fits: Fit[];
    stored: Row[];
    cycles: Row[];
    burnin: Row[];
    parts: readonly PartRow[];
    summaries: object;
    samples: object;
  };
}

export interface SnapshotsOptions {
  quick: boolean;
  /** Of the burn-in at the end, unless quick. */
  burninMinutes: number;
  /** Where its plots go; nowhere if undefined. */
  folder: string | undefined;
  say: (line: string) => void;
  signal: AbortSignal;
}

/** Six minutes less what the end of the cluster takes. */
const QUICK_MS = 340_000;
const MINUTE_MS = 60_000;
const LEAST_BURN_MS = 20_000;
/** The burn-in's actors are made before its time, and its last operations end after it. */
const AROUND_BURN_MS = 10_000;

/** Everything that putting memory away and bringing it back costs, beside what it costs without the product. */
export async function snapshots(options: SnapshotsOptions): Promise<SnapshotsResult> {
  const { quick, say, signal } = options;
  const samples = new Samples();
  const parts = new Parts({ quickMs: quick ? QUICK_MS : undefined, signal, say });
  await using ground = await Ground.open(options);
  try {
    return await measured({ ground, samples, parts, quick, signal, say }, options);
  } catch (error) {
    // an hour of measurements is not lost by the failure of one
    if (!signal.aborted) say(`measured before the failure:\n${JSON.stringify(samples)}`);
    throw error;
  }
}

async function measured(
  plan: Plan,
  { burninMinutes, folder }: Pick<SnapshotsOptions, "burninMinutes" | "folder">,
): Promise<SnapshotsResult> {
  const { ground, samples, parts, quick, signal, say } = plan;
  const heldResult = await parts.run("held memory", (endMs) => held(plan, endMs));
  const storedResult = await stored(plan);
  const pythonKeys = await parts.run("Python server", (endMs) => python(plan, endMs));
  const runningKeys = await parts.run("requests", () => running(plan));
  const tightKeys = await parts.run("tight memory", (endMs) => tight(plan, endMs));
  const cyclesResult = await parts.run("fifteen actors", (endMs) => cycles(plan, endMs));
  const burninResult = await parts.run("burn-in", (endMs) => {
    const quickMs = Math.max(LEAST_BURN_MS, endMs - performance.now() - AROUND_BURN_MS);
    const minutes = quick ? quickMs / MINUTE_MS : burninMinutes;
    return burn(ground, { users: 6, minutes, probeEveryMs: quick ? 4_000 : 30_000, folder, say, signal });
  });
  const keys = {
    ...heldResult.keys,
    ...storedResult.keys,
    ...pythonKeys,
    ...runningKeys,
    ...tightKeys,
    ...cyclesResult.keys,
    ...burninResult.keys,
  };
  const { burned, rows } = burninResult;
  const all = { samples, quick, burned, node: rows.at(-1) ?? {}, parts: parts.rows };
  for (const table of [aimsTable(keys), ...tables(all)]) say(`\n${markdown(table)}`);
  return {
    rounds: samples.of("resume 1000 MiB random").length,
    ...keys,
    rows: {
      held: heldResult.rows,
      fits: fits(samples, heldMib(quick)),
      stored: storedResult.rows,
      cycles: cyclesResult.rows,
      burnin: rows,
      parts: parts.rows,
      summaries: samples.summaries(),
      samples,
    },
  };
}
