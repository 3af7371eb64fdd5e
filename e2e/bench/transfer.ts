import { createHash, randomFillSync } from "node:crypto";
import { closeSync, createReadStream, openSync, readdirSync, readFileSync, writeSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { PageEngine } from "@substrate/atelet/pages/page-engine.ts";
import { ObjectSnapshotStore } from "@substrate/atelet/store/object-snapshots.ts";
import { facts, prefixOf } from "@substrate/atelet/store/packed-world.ts";
import { S3Thread } from "@substrate/atelet/store/s3/thread.ts";
import { S3Server } from "../store/s3-server.ts";
import { Link } from "./snapshots/link.ts";
import { PlainClient } from "./snapshots/plain.ts";
import { median } from "./statistics.ts";

export interface TransferOptions {
  rounds: number;
  mib: number;
  /** Of the link to the store; 0: straight. */
  mibPerSecond: number;
  /** Of its round trip. */
  delayMs: number;
  say: (line: string) => void;
  /** Between two rounds. */
  signal: AbortSignal;
}

const WAYS = ["table", "upload", "download"] as const;
type Way = (typeof WAYS)[number];

/** Of one piece of work, in this process. */
interface Spent {
  ms: number;
  /** By thread. */
  cpuSeconds: Record<string, number>;
  /** Of the main thread's event loop. */
  loopDelayMs: number;
  load: number;
}

export interface TransferResult {
  rounds: number;
  rows: { way: Way | "plain upload" | "plain download"; spent: Spent[] }[];
  uploadOverPlain: number;
  downloadOverPlain: number;
  tableCpuSecondsPerGib: number;
  uploadCpuSecondsPerGib: number;
  downloadCpuSecondsPerGib: number;
  loopDelayMs: number;
  peakRssMib: number;
}

const MIB = 2 ** 20;
const CLOCK_TICKS_PER_SECOND = 100;

/**
 * What a memory image costs on its way to a bucket and back, without sandboxes: the engine of pages, the snapshot store
 * and the driver in this process, random memory that nothing is shared of, beside one curl.
 */
export async function transfer({
  rounds,
  mib,
  mibPerSecond,
  delayMs,
  say,
  signal,
}: TransferOptions): Promise<TransferResult> {
  const dir = await mkdtemp(join(tmpdir(), "bench-transfer-"));
  const server = await S3Server.start(dir);
  const link = await Link.start(server.port);
  await link.shape({ mibPerSecond, delayMs });
  const port = mibPerSecond === 0 && delayMs === 0 ? server.port : link.port;
  const bucket = await S3Thread.open(server.settings({ port }));
  const engine = new PageEngine();
  const { bucket: name } = server;
  const plain = new PlainClient(
    { bucket: name, accessKeyId: "key", secretAccessKey: "hush" },
    join(dir, "plain"),
    signal,
  );
  const spent = new Map<string, Spent[]>();
  const add = (way: string, one: Spent): void => {
    spent.set(way, [...(spent.get(way) ?? []), one]);
    const threads = Object.entries(one.cpuSeconds)
      .map(([thread, seconds]) => `${thread} ${((seconds / mib) * 1024).toFixed(2)}`)
      .join(", ");
    const cpu = cpuPerGib(one, mib).toFixed(2);
    say(
      `${way.padEnd(14)} ${((mib / one.ms) * 1000).toFixed(0)} MiB/s, ${cpu} CPU s/GiB (${threads}), ` +
        `loop ${one.loopDelayMs.toFixed(1)} ms, load ${one.load.toFixed(1)}`,
    );
  };
  try {
    const image = join(dir, "image");
    await mkdir(image);
    const sha256 = writeRandom(join(image, "pages.img"), mib);
    const store = new ObjectSnapshotStore(bucket, engine);
    for (let round = 0; round < rounds; round += 1) {
      signal.throwIfAborted();
      add("plain upload", await plainly(() => plain.upload(mib, port)));
      add("plain download", await plainly(() => plain.download(mib, port)));
      const prefix = prefixOf(`actor-${round}`);
      const table = join(dir, "table");
      add("table", await spend(() => engine.table({ file: join(image, "pages.img"), table })));
      const content = { dirs: [image], pages: { table, bases: [] } };
      add("upload", await spend(() => store.commit(prefix, facts(prefix, 1, 1), content)));
      const back = join(dir, "back");
      await mkdir(back);
      const pages = { table: join(dir, "back.table"), index: join(dir, "back.index"), reuse: [] };
      add("download", await spend(() => store.download(prefix, "1-1/manifest.json", { dir: back, pages, lent: true })));
      if ((await sha256Of(join(back, "pages.img"))) !== sha256) throw new Error("the image is not what it was");
      await rm(back, { recursive: true });
      await store.deletePrefix(prefix);
    }
  } finally {
    await engine.close();
    await bucket.close();
    await link.stop();
    await server.kill();
    await rm(dir, { recursive: true });
  }
  const of = (way: string): Spent[] => spent.get(way) ?? [];
  const ms = (way: string): number => median(of(way).map((one) => one.ms));
  const cpu = (way: Way): number => median(of(way).map((one) => cpuPerGib(one, mib)));
  return {
    rounds,
    rows: (["plain upload", "plain download", ...WAYS] as const).map((way) => ({ way, spent: of(way) })),
    uploadOverPlain: ms("plain upload") / ms("upload"),
    downloadOverPlain: ms("download") / ms("plain download"),
    tableCpuSecondsPerGib: cpu("table"),
    uploadCpuSecondsPerGib: cpu("upload"),
    downloadCpuSecondsPerGib: cpu("download"),
    loopDelayMs: Math.max(...WAYS.flatMap((way) => of(way).map((one) => one.loopDelayMs))),
    peakRssMib: process.resourceUsage().maxRSS / 1024,
  };
}

function cpuPerGib({ cpuSeconds }: Spent, mib: number): number {
  return (Object.values(cpuSeconds).reduce((sum, seconds) => sum + seconds, 0) / mib) * 1024;
}

/** @returns the sha256 of all. */
function writeRandom(path: string, mib: number): string {
  const hash = createHash("sha256");
  const file = openSync(path, "w");
  const piece = Buffer.alloc(MIB);
  for (let i = 0; i < mib; i += 1) {
    randomFillSync(piece);
    hash.update(piece);
    writeSync(file, piece);
  }
  closeSync(file);
  return hash.digest("hex");
}

async function sha256Of(path: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const piece of createReadStream(path)) hash.update(piece as Buffer);
  return hash.digest("hex");
}

async function plainly(work: () => Promise<number>): Promise<Spent> {
  return { ms: await work(), cpuSeconds: {}, loopDelayMs: 0, load: loadavg()[0] ?? NaN };
}

async function spend(work: () => Promise<unknown>): Promise<Spent> {
  const before = threadSeconds();
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  const startMs = performance.now();
  await work();
  const ms = performance.now() - startMs;
  delay.disable();
  const cpuSeconds: Record<string, number> = {};
  for (const [id, { name, seconds }] of threadSeconds()) {
    const used = seconds - (before.get(id)?.seconds ?? 0);
    if (used > 0) cpuSeconds[name] = (cpuSeconds[name] ?? 0) + used;
  }
  return { ms, cpuSeconds, loopDelayMs: delay.percentile(99) / 1e6, load: loadavg()[0] ?? NaN };
}

/** CPU time of each thread of this process so far. */
function threadSeconds(): Map<string, { name: string; seconds: number }> {
  const threads = new Map<string, { name: string; seconds: number }>();
  for (const id of readdirSync("/proc/self/task")) {
    const [head = "", rest = ""] = readFileSync(`/proc/self/task/${id}/stat`, "utf8").split(") ");
    const fields = rest.split(" ");
    const name = head.slice(head.indexOf("(") + 1);
    threads.set(id, { name, seconds: (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS_PER_SECOND });
  }
  return threads;
}
