import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Row } from "../snapshots/plan.ts";
import { percentile } from "../statistics.ts";
import { type NodeSample } from "./node-sample.ts";
import { svg } from "./svg.ts";
import { type Timing } from "./timings.ts";

export interface Burned {
  startMs: number;
  windowSeconds: number;
  timings: readonly Timing[];
  samples: readonly NodeSample[];
}

const colors = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b"];
const plotted = ["wake", "suspend", "suspend.checkpoint", "raw checkpoint"];

function secondsOf({ startMs }: Burned, { endedMs }: Timing): number {
  return (endedMs - startMs) / 1000;
}

/** Durations of one series, of one window or of all. */
export function durations(burned: Burned, series: string, window?: number): number[] {
  return burned.timings
    .filter((timing) => timing.series === series)
    .filter((timing) => window === undefined || Math.floor(secondsOf(burned, timing) / burned.windowSeconds) === window)
    .map(({ ms }) => ms);
}

/** Whole windows only: the last operations end after the last one. */
export function windows({ windowSeconds, samples }: Burned): number {
  return Math.max(1, Math.round((samples.at(-1)?.atSeconds ?? 0) / windowSeconds));
}

/** One row for each window and series, and one of all windows for what the node held. */
export function table(burned: Burned): Row[] {
  const series = [...new Set(burned.timings.map((timing) => timing.series))].sort();
  const rows: Row[] = [];
  for (let window = 0; window < windows(burned); window += 1) {
    for (const name of series) {
      const values = durations(burned, name, window);
      if (values.length === 0) continue;
      const [p50 = NaN, p90 = NaN, p99 = NaN, max = NaN] = [0.5, 0.9, 0.99, 1].map((share) =>
        percentile(values, share),
      );
      rows.push({ fromSeconds: window * burned.windowSeconds, series: name, count: values.length, p50, p90, p99, max });
    }
  }
  const largest = (of: (sample: NodeSample) => number): number => Math.max(...burned.samples.map(of));
  rows.push({
    series: "node, largest",
    diskMib: largest(({ diskMib }) => diskMib),
    deletedHeldMib: largest(({ deletedHeldMib }) => deletedHeldMib),
    dirtyMib: largest(({ dirtyMib }) => dirtyMib),
    storedMib: largest(({ storedMib }) => storedMib),
    ateletRssMib: largest(({ ateletRssMib }) => ateletRssMib),
    loopDelayMs: largest(({ loopDelayMs }) => loopDelayMs),
  });
  return rows;
}

/** CSV of every value and plots of them, into a folder that is made. */
export async function writeReport(burned: Burned, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const timingLines = burned.timings.map((timing) => [secondsOf(burned, timing).toFixed(2), timing.series, timing.ms]);
  await writeFile(join(folder, "timings.csv"), csv(["seconds", "series", "ms"], timingLines));
  const names = Object.keys(burned.samples[0] ?? {}) as (keyof NodeSample)[];
  const sampleLines = burned.samples.map((sample) => names.map((name) => sample[name].toFixed(2)));
  await writeFile(join(folder, "node.csv"), csv(names, sampleLines));
  for (const [file, picked] of [
    ["operations", plotted],
    ["suspend-phases", phasesOf(burned, "suspend")],
    ["resume-phases", phasesOf(burned, "resume")],
  ] as const) {
    await writeFile(join(folder, `${file}.svg`), timingsPlot(burned, file, picked));
  }
  for (const name of names.filter((each) => each !== "atSeconds")) {
    const points = burned.samples.map((sample) => ({ x: sample.atSeconds, y: sample[name] }));
    const series = [{ name, color: "#1f77b4", points, line: true }];
    await writeFile(join(folder, `${name}.svg`), svg({ title: name, xName: "seconds", yName: name, series }));
  }
}

/** The longest of an operation, by their median. */
function phasesOf(burned: Burned, operation: string): string[] {
  const all = new Set(
    burned.timings.map(({ series }) => series).filter((series) => series.startsWith(`${operation}.`)),
  );
  all.delete(`${operation}.total`);
  const half = (series: string): number => percentile(durations(burned, series), 0.5);
  return [...all].sort((a, b) => half(b) - half(a)).slice(0, colors.length);
}

function timingsPlot(burned: Burned, title: string, picked: readonly string[]): string {
  return svg({
    title,
    xName: "seconds",
    yName: "ms",
    series: picked.map((name, i) => ({
      name,
      color: colors[i % colors.length] ?? "black",
      line: false,
      points: burned.timings
        .filter(({ series }) => series === name)
        .map((timing) => ({ x: secondsOf(burned, timing), y: timing.ms })),
    })),
  });
}

function csv(head: readonly string[], lines: readonly (readonly (string | number)[])[]): string {
  return [head, ...lines].map((line) => `${line.join(",")}\n`).join("");
}
