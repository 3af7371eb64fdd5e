import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildCounter, buildPython } from "@substrate/examples/programs.ts";
import { startLocalCluster } from "@substrate/local/cluster.ts";
import { tools } from "../support/tools.ts";
import { exampleTemplate } from "./example-template.ts";
import { Product } from "./product.ts";
import { median } from "./statistics.ts";

/** Milliseconds from a request until its first byte, medians of the rounds. */
export interface StartsRow {
  program: string;
  /** First request to a new actor whose Template has no golden snapshot. */
  cold: number;
  /** First request to a new actor that begins from the golden snapshot. */
  golden: number;
  /** A request that wakes the same actor from its own snapshot on the node. */
  resume: number;
}

export interface StartsResult {
  rounds: number;
  rows: StartsRow[];
  /** Largest of the rows' ratios. */
  goldenOverResume: number;
  /** Of the program that takes longest to start: what a golden snapshot saves. */
  coldOverGolden: number;
}

const programs = [
  { name: "counter", build: buildCounter },
  { name: "python", build: buildPython },
];

/** New actors, cold and from the golden snapshot, beside resumes of the same actors, in turn, in one run. */
export async function starts({
  rounds,
  say,
  signal,
}: {
  rounds: number;
  say: (line: string) => void;
  signal: AbortSignal;
}): Promise<StartsResult> {
  await using undo = new AsyncDisposableStack();
  const stateDir = await mkdtemp(join(tmpdir(), "sub-bench-"));
  undo.defer(() => rm(stateDir, { recursive: true, force: true }));
  const cluster = await startLocalCluster({ stateDir, say: () => undefined, tools, signal });
  undo.defer(() => cluster.stop());
  const product = await Product.create(cluster, signal);
  undo.defer(() => product.close());
  const rows: StartsRow[] = [];
  for (const { name, build } of programs) {
    const { reference } = await build(join(stateDir, name));
    for (const golden of ["Auto", "Never"] as const)
      await product.template(await exampleTemplate(name, reference, golden));
    const row = await measure(product, name, rounds);
    rows.push(row);
    say(
      `${name.padEnd(8)} cold ${row.cold.toFixed(0)} ms, golden ${row.golden.toFixed(0)} ms, resume ${row.resume.toFixed(0)} ms`,
    );
  }
  const slowest = rows.toSorted((a, b) => b.cold - a.cold)[0];
  return {
    rounds,
    rows,
    goldenOverResume: Math.max(...rows.map(({ golden, resume }) => golden / resume)),
    coldOverGolden: slowest === undefined ? NaN : slowest.cold / slowest.golden,
  };
}

async function measure(product: Product, program: string, rounds: number): Promise<StartsRow> {
  const times: Record<"cold" | "golden" | "resume", number[]> = { cold: [], golden: [], resume: [] };
  for (let round = 1; round <= rounds; round += 1) {
    const [cold, golden] = [`${program}-cold-${round}`, `${program}-golden-${round}`];
    await product.actor(cold, `${program}-never`);
    times.cold.push(await product.resume(cold));
    await product.removeActor(cold);
    await product.actor(golden, `${program}-auto`);
    times.golden.push(await product.resume(golden));
    await product.suspend(golden, "Async");
    times.resume.push(await product.resume(golden));
    await product.removeActor(golden);
  }
  return { program, cold: median(times.cold), golden: median(times.golden), resume: median(times.resume) };
}
