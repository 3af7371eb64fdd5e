import { Ground } from "../snapshots/ground.ts";
import { type Row } from "../snapshots/plan.ts";
import { burn, type BurninKeys } from "./burn.ts";

export interface BurninResult extends BurninKeys {
  rounds: number;
  rows: Row[];
}

const PROBE_EVERY_MS = 30_000;

/** The burn-in on a cluster of its own. */
export async function burnin(options: {
  users: number;
  minutes: number;
  folder: string | undefined;
  say: (line: string) => void;
  signal: AbortSignal;
}): Promise<BurninResult> {
  await using ground = await Ground.open(options);
  // at least two probes in the shortest window
  const probeEveryMs = Math.min(PROBE_EVERY_MS, options.minutes * 5_000);
  const { keys, rows } = await burn(ground, { ...options, probeEveryMs });
  return { rounds: 1, ...keys, rows };
}
