import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startLocalCluster } from "@substrate/local/cluster.ts";
import { buildGlutton } from "../programs/glutton.ts";
import { openRig } from "../sandbox/open-rig.ts";
import { answer, type SandboxRig } from "../sandbox/rig.ts";
import { tools } from "../support/tools.ts";
import { level } from "./level.ts";
import { type MeasuredActor, Product } from "./product.ts";
import { rawClose, rawLoaded, rawResume, type RawSandbox, rawStart, rawSuspend } from "./raw.ts";
import { requestTimes } from "./requests.ts";
import { line, median } from "./statistics.ts";

/** Milliseconds, medians of the rounds. */
export interface LoopRow {
  mib: number;
  kind: "random" | "zero";
  suspendAsync: number;
  suspendSync: number;
  resumeNode: number;
  resumeStore: number;
  rawSuspend: number;
  rawResume: number;
}

export interface LoopResult {
  rounds: number;
  rows: LoopRow[];
  /** Largest of the rows' ratios; raw: create, restore into a fresh sandbox, first byte. */
  resumeOverRaw: number;
  /** Of random memory that is not touched. */
  resumeSlopeMsPerMiB: number;
  /** Largest ratio among the rows of at least 200 MiB of random memory. */
  suspendOverRaw: number;
  /** p50 of a request through the router less p50 of one around it, in turn over two warm connections. */
  routerAddedMs: number;
}

const sizes: { mib: number; kind: "random" | "zero" }[] = [
  { mib: 0, kind: "random" },
  ...[50, 200, 500, 1000].flatMap((mib) => (["random", "zero"] as const).map((kind) => ({ mib, kind }))),
];

const ROUTER_REQUESTS = 1500;

export interface LoopOptions {
  rounds: number;
  /** Largest size that is measured, MiB. */
  maxMib: number;
  say: (line: string) => void;
  signal: AbortSignal;
}

/** Suspend and resume through the whole product beside raw runsc, in turn, in one run. */
export async function loop({ rounds, maxMib, say, signal }: LoopOptions): Promise<LoopResult> {
  await using undo = new AsyncDisposableStack();
  const stateDir = await mkdtemp(join(tmpdir(), "sub-bench-"));
  undo.defer(() => rm(stateDir, { recursive: true, force: true }));
  const { reference } = await buildGlutton(join(stateDir, "glutton"), signal);
  const cluster = await startLocalCluster({ stateDir, say: () => undefined, tools, signal });
  undo.defer(() => cluster.stop());
  const rig = await openRig(signal);
  undo.defer(() => rig.close());
  const product = await Product.create(cluster, signal);
  undo.defer(() => product.close());
  const rows: LoopRow[] = [];
  for (const size of sizes.filter(({ mib }) => mib <= maxMib)) {
    const row = await measure({ product, rig, signal, image: reference }, size, rounds);
    rows.push(row);
    say(format(row));
  }
  await product.make({ name: "router", mib: 0, kind: "zero" }, reference, { detachDelay: "10m" });
  const { through, around } = await requestTimes(cluster, "router", { count: ROUTER_REQUESTS, signal });
  return { rounds, rows, ...summary(rows), routerAddedMs: median(through) - median(around) };
}

function format(row: LoopRow): string {
  const { mib, kind, ...times } = row;
  const cells = Object.entries(times).map(([name, ms]) => `${name} ${Math.round(ms)}`);
  return `${String(mib).padStart(4)} MiB ${kind.padEnd(6)}  ${cells.join("  ")}`;
}

interface Bench {
  product: Product;
  rig: SandboxRig;
  signal: AbortSignal;
  image: string;
}

async function measure(
  { product, rig, signal, image }: Bench,
  size: { mib: number; kind: "random" | "zero" },
  rounds: number,
): Promise<LoopRow> {
  const near: MeasuredActor = { name: `near-${size.mib}-${size.kind}`, ...size };
  const far: MeasuredActor = { name: `far-${size.mib}-${size.kind}`, ...size };
  await product.make(near, image, { detachDelay: "10m" });
  await product.make(far, image, { detachDelay: "0s" });
  const place = await rig.place("glutton", { memoryMiB: size.mib + 300 });
  const raw: RawSandbox = {
    runscPath: tools.runsc,
    rootDir: join(rig.dir, "raw"),
    spec: place.spec,
    url: place.url,
    putAddress: () => place.putAddress(),
    signal,
  };
  await mkdir(raw.rootDir, { recursive: true });
  let row: LoopRow;
  try {
    await rawStart(raw);
    await answer(place, "POST", `/hold?mib=${size.mib}&kind=${size.kind}`);
    row = await inTurn(product, rig, raw, { near: near.name, far: far.name }, size, rounds);
  } finally {
    await rawClose(raw);
  }
  await product.remove(near.name);
  await product.remove(far.name);
  return row;
}

async function inTurn(
  product: Product,
  rig: SandboxRig,
  raw: RawSandbox,
  { near, far }: { near: string; far: string },
  size: { mib: number; kind: "random" | "zero" },
  rounds: number,
): Promise<LoopRow> {
  const times: Record<keyof Omit<LoopRow, "mib" | "kind">, number[]> = {
    suspendAsync: [],
    suspendSync: [],
    resumeNode: [],
    resumeStore: [],
    rawSuspend: [],
    rawResume: [],
  };
  for (let round = 0; round < rounds; round++) {
    // As in the product: the older image goes when the newer one is there, so that neither finds pages just freed.
    const imageDir = join(rig.dir, `image-${round}`);
    await mkdir(imageDir);
    level(rig.dir, size.mib);
    times.rawSuspend.push((await rawSuspend(raw, imageDir)).totalMs);
    times.rawResume.push((await rawResume(raw, imageDir)).totalMs);
    await rawLoaded(raw);
    await rm(join(rig.dir, `image-${round - 1}`), { recursive: true, force: true });

    level(rig.dir, size.mib);
    times.suspendAsync.push(await product.suspend(near, "Async"));
    times.resumeNode.push(await product.resume(near));
    // every page is read, so that the load has ended before the next measurement
    await product.touch(near);
  }
  await rm(join(rig.dir, `image-${rounds - 1}`), { recursive: true, force: true });
  // Apart from the others: the store's copies and what is deleted after them keep the disk busy in the background.
  for (let round = 0; round < rounds; round++) {
    level(rig.dir, size.mib);
    times.suspendSync.push(await product.suspend(far, "Sync"));
    await product.detached(far);
    times.resumeStore.push(await product.resume(far));
    await product.touch(far);
  }
  return {
    ...size,
    suspendAsync: median(times.suspendAsync),
    suspendSync: median(times.suspendSync),
    resumeNode: median(times.resumeNode),
    resumeStore: median(times.resumeStore),
    rawSuspend: median(times.rawSuspend),
    rawResume: median(times.rawResume),
  };
}

function summary(rows: readonly LoopRow[]): Omit<LoopResult, "rounds" | "rows" | "routerAddedMs"> {
  const random = rows.filter(({ kind }) => kind === "random");
  const large = random.filter(({ mib }) => mib >= 200);
  return {
    resumeOverRaw: Math.max(...rows.map((row) => row.resumeNode / row.rawResume)),
    resumeSlopeMsPerMiB: line(random.map(({ mib, resumeNode }) => ({ x: mib, y: resumeNode }))).slope,
    suspendOverRaw: Math.max(...large.map((row) => row.suspendAsync / row.rawSuspend)),
  };
}
