import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startLocalCluster } from "@substrate/local/cluster.ts";
import { Client } from "undici";
import { buildGlutton } from "../programs/glutton.ts";
import { openRig } from "../sandbox/open-rig.ts";
import { answer, type SandboxRig } from "../sandbox/rig.ts";
import { tools } from "../support/tools.ts";
import { endpointOf } from "./direct.ts";
import { level } from "./level.ts";
import { type MeasuredActor, Product } from "./product.ts";
import { rawDelete, rawLoaded, rawResume, type RawSandbox, rawStart, rawSuspend } from "./raw.ts";
import { median, slope } from "./statistics.ts";

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

export interface LoopOptions {
  rounds: number;
  /** Largest size that is measured, MiB. */
  maxMib: number;
  say: (line: string) => void;
}

/** Suspend and resume through the whole product beside raw runsc, in turn, in one run. */
export async function loop(options: LoopOptions): Promise<LoopResult> {
  const stateDir = await mkdtemp(join(tmpdir(), "sub-bench-"));
  try {
    const { reference } = await buildGlutton(join(stateDir, "glutton"));
    const cluster = await startLocalCluster({ stateDir, say: () => undefined, tools });
    try {
      const rig = await openRig();
      try {
        const product = await Product.create(cluster);
        const rows: LoopRow[] = [];
        for (const size of sizes.filter(({ mib }) => mib <= options.maxMib)) {
          const row = await measure(product, rig, size, reference, options.rounds);
          rows.push(row);
          options.say(format(row));
        }
        await product.make({ name: "router", mib: 0, kind: "zero" }, reference, { detachDelay: "10m" });
        const routerAddedMs = await measureRouter(cluster.routerUrl, await endpointOf(cluster, "router"));
        await product.close();
        return { rounds: options.rounds, rows, ...summary(rows), routerAddedMs };
      } finally {
        await rig.close();
      }
    } finally {
      await cluster.stop();
    }
  } finally {
    await rm(stateDir, { recursive: true, force: true });
  }
}

function format(row: LoopRow): string {
  const { mib, kind, ...times } = row;
  const cells = Object.entries(times).map(([name, ms]) => `${name} ${Math.round(ms)}`);
  return `${String(mib).padStart(4)} MiB ${kind.padEnd(6)}  ${cells.join("  ")}`;
}

async function measure(
  product: Product,
  rig: SandboxRig,
  size: { mib: number; kind: "random" | "zero" },
  image: string,
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
  };
  await mkdir(raw.rootDir, { recursive: true });
  try {
    await rawStart(raw);
    await answer(place, "POST", `/hold?mib=${size.mib}&kind=${size.kind}`);
    return await inTurn(product, rig, raw, { near: near.name, far: far.name }, size, rounds);
  } finally {
    await rawDelete(raw);
    // runsc keeps this mount for as long as its root is used
    execFileSync("umount", [join(raw.rootDir, "null-netns")]);
    await product.remove(near.name);
    await product.remove(far.name);
  }
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
    resumeSlopeMsPerMiB: slope(random.map(({ mib, resumeNode }) => ({ x: mib, y: resumeNode }))),
    suspendOverRaw: Math.max(...large.map((row) => row.suspendAsync / row.rawSuspend)),
  };
}

const ROUTER_REQUESTS = 1500;

async function measureRouter(routerUrl: string, endpoint: string): Promise<number> {
  const through = new Client(routerUrl);
  const around = new Client(endpoint);
  const timed = async (client: Client): Promise<number> => {
    const startMs = performance.now();
    const { body } = await client.request({
      method: "GET",
      path: "/",
      headers: { "substrate-actor": "default/router" },
    });
    await body.dump();
    return performance.now() - startMs;
  };
  const times: { through: number[]; around: number[] } = { through: [], around: [] };
  for (let i = 0; i < ROUTER_REQUESTS; i++) {
    times.through.push(await timed(through));
    times.around.push(await timed(around));
  }
  await Promise.all([through.close(), around.close()]);
  return median(times.through) - median(times.around);
}
