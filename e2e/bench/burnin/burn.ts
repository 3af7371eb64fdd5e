import { setTimeout as delay } from "node:timers/promises";
import { allAtOnce } from "../interruption.ts";
import { rawCheckpoint } from "../raw.ts";
import { type Ground, type RawProgram } from "../snapshots/ground.ts";
import { type Row } from "../snapshots/plan.ts";
import { percentile } from "../statistics.ts";
import { gluttonTemplate } from "../template.ts";
import { type NodeSample, sampleNode } from "./node-sample.ts";
import { type Burned, durations, table, windows, writeReport } from "./report.ts";
import { type Timing, TimingLines } from "./timings.ts";

export interface BurninKeys {
  /** p99 ÷ p50 of the node's checkpoints, over the same of raw ones beside them. */
  checkpointP99OverP50: number;
  /** p90 of the last window ÷ p90 of the first, over the same of raw ones. */
  checkpointP90Drift: number;
}

export interface BurninOptions {
  users: number;
  minutes: number;
  probeEveryMs: number;
  folder: string | undefined;
  say: (line: string) => void;
  signal: AbortSignal;
}

interface BurnResult {
  keys: BurninKeys;
  /** The last one is the node's. */
  rows: Row[];
  burned: Burned;
}

/** All the same, so that a tail is not a large actor's. */
const HELD_MIB = 256;
const CHANGED_MIB = 13;
const FILES_MIB = 4;
const BUSY_MS = 200;
const THINK_MS = { least: 1_000, most: 5_000 };
const SAMPLE_EVERY_MS = 5_000;
const WINDOW_SECONDS = 300;
/** A shorter run still has a first and a last window. */
const LEAST_WINDOWS = 4;

/** Users cycle request, work, suspend and think, each with an actor of its own; a raw checkpoint probes the machine. */
export async function burn(ground: Ground, options: BurninOptions): Promise<BurnResult> {
  const { users, minutes, folder, say } = options;
  const names = Array.from({ length: users }, (_, i) => `burn-${i}`);
  await makeActors(ground, names);
  const probe = await ground.raw({ mib: HELD_MIB, kind: "random" });
  const lines = new TimingLines(ground.cluster.logFile("atelet"));
  await lines.skip();
  const timings: Timing[] = [];
  const samples: NodeSample[] = [];
  const startMs = Date.now();
  const endMs = startMs + minutes * 60_000;
  const mine = new Set(names.map((name) => `default/${name}`));
  const watch = async (given: AbortSignal): Promise<void> =>
    every({ ms: SAMPLE_EVERY_MS, endMs, given }, async () => {
      samples.push(await sampleNode(ground, (Date.now() - startMs) / 1000));
      timings.push(...(await lines.next((actor) => mine.has(actor))));
    });
  const probing = async (given: AbortSignal): Promise<void> =>
    every({ ms: options.probeEveryMs, endMs, given }, async () => {
      timings.push({ series: "raw checkpoint", ms: await probed(probe), endedMs: Date.now() });
    });
  const working = names.map((name) => (given: AbortSignal) => user(ground, { name, endMs, given }, timings));
  await allAtOnce(options.signal, [watch, probing, ...working]);
  await probe.close();
  const windowSeconds = Math.min(WINDOW_SECONDS, (minutes * 60) / LEAST_WINDOWS);
  const burned: Burned = { startMs, windowSeconds, timings, samples };
  const rows = table(burned);
  for (const row of rows.filter(
    ({ series }) => !/^(suspend|resume|upload)\.(?!checkpoint$|restore$)/.test(`${series}`),
  ))
    say(shown(row));
  if (folder !== undefined) {
    await writeReport(burned, folder);
    say(`values and plots are in ${folder}`);
  }
  for (const name of names) await ground.product.removeActor(name);
  return { keys: keysOf(burned), rows, burned };
}

/** Every second one has its files on a volume. */
async function makeActors({ product, image }: Ground, names: readonly string[]): Promise<void> {
  const common = { detachDelay: "10m", uploadDelay: "5s", store: "direct", memoryMib: HELD_MIB + 128 };
  await product.template(gluttonTemplate("burn-rootfs", image, common));
  await product.template(gluttonTemplate("burn-volume", image, { ...common, volume: "/work" }));
  for (const [i, name] of names.entries()) {
    await product.actor(name, i % 2 === 0 ? "burn-rootfs" : "burn-volume");
    await product.hold({ name, mib: HELD_MIB, kind: "random" });
  }
}

async function user(
  { product }: Ground,
  { name, endMs, given }: { name: string; endMs: number; given: AbortSignal },
  timings: Timing[],
): Promise<void> {
  const timed = async (series: string, work: Promise<number>): Promise<void> => {
    const ms = await work;
    timings.push({ series, ms, endedMs: Date.now() });
  };
  await product.suspend(name, "Async");
  while (Date.now() < endMs) {
    const thinkMs = THINK_MS.least + Math.random() * (THINK_MS.most - THINK_MS.least);
    await delay(thinkMs, undefined, { signal: given });
    await timed("wake", product.resume(name));
    await product.request(name, "POST", `/churn?mib=${CHANGED_MIB}&kind=random`);
    await product.request(name, "POST", `/disk?path=/work&mib=${FILES_MIB}&files=4&kind=random`);
    await product.request(name, "POST", `/burn?ms=${BUSY_MS}&threads=1`);
    await timed("suspend", product.suspend(name, "Async"));
  }
}

async function probed({ sandbox, nextImage }: RawProgram): Promise<number> {
  return rawCheckpoint(sandbox, await nextImage());
}

/** One after the other, at this distance from begin to begin at least. */
async function every(
  { ms, endMs, given }: { ms: number; endMs: number; given: AbortSignal },
  work: () => Promise<void>,
): Promise<void> {
  for (let nextMs = Date.now(); nextMs < endMs; nextMs = Math.max(nextMs + ms, Date.now())) {
    await delay(Math.max(0, nextMs - Date.now()), undefined, { signal: given });
    await work();
  }
}

function keysOf(burned: Burned): BurninKeys {
  const share = (series: string, of: number, window?: number): number =>
    percentile(durations(burned, series, window), of);
  const tail = (series: string): number => share(series, 0.99) / share(series, 0.5);
  const last = windows(burned) - 1;
  const drift = (series: string): number => share(series, 0.9, last) / share(series, 0.9, 0);
  return {
    checkpointP99OverP50: tail("suspend.checkpoint") / tail("raw checkpoint"),
    checkpointP90Drift: drift("suspend.checkpoint") / drift("raw checkpoint"),
  };
}

function shown(row: Row): string {
  const cells = Object.entries(row).map(([name, value]) => {
    return `${name} ${typeof value === "number" ? Math.round(value * 10) / 10 : value}`;
  });
  return cells.join("  ");
}
