import { spawn } from "node:child_process";
import { rename } from "node:fs/promises";
import { basename, join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { allAtOnce } from "./interruption.ts";
import { rawCreate, rawSuspend } from "./raw.ts";
import { type RawProgram } from "./snapshots/ground.ts";
import { type Plan, type Row } from "./snapshots/plan.ts";
import { gluttonTemplate } from "./template.ts";

export interface CyclesKeys {
  /** Of 15 actors, cycles a minute: over the same by runsc in shell loops. */
  cyclesOverRaw: number;
  cyclesPerMinute: number;
}

const ACTORS = 15;
const CAPACITY_MIB = 512;
const CHURN_MIB = 32;
const WAIT_MS = 1000;
/** What a block may take beyond its time: the last cycles of each actor, on a machine that is busy with 15 of them. */
const GRACE_MS = 60_000;
/** Of 15 actors on two cores: a shorter block has no whole cycle of each. */
const LEAST_BLOCK_MS = 5_000;
/** The last cycles of a block end after it. */
const LAST_CYCLE_MS = 3_000;

/** Request with churn, suspend, a second of waiting, by 15 actors at once; blocks of the product and of raw in turn. */
export async function cycles(plan: Plan, endMs: number): Promise<{ keys: CyclesKeys; rows: Row[] }> {
  const { ground, samples, quick, signal, say } = plan;
  const { product, image } = ground;
  const names = Array.from({ length: ACTORS }, (_, i) => `cycle-${i}`);
  const template = gluttonTemplate("cycle", image, { detachDelay: "10m", store: "direct", memoryMib: CAPACITY_MIB });
  await product.template(template);
  const raws: RawProgram[] = [];
  for (const name of names) {
    await product.actor(name, "cycle");
    await product.hold({ name, mib: CHURN_MIB, kind: "random" });
    await product.suspend(name, "Async");
    raws.push(await asleep(plan));
  }
  const blocks = quick ? 1 : 3;
  const restMs = endMs - performance.now();
  const blockMs = quick ? Math.max(LEAST_BLOCK_MS, restMs / blocks / 2 - LAST_CYCLE_MS) : 60_000;
  for (let block = 0; block < blocks; block += 1) {
    const both = [
      async () => {
        const loops = (untilMs: number) => raws.map((raw) => (given: AbortSignal) => rawLoop(raw, untilMs, given));
        samples.add("raw cycles/min", await perMinute(blockMs, (untilMs) => sum(signal, loops(untilMs))));
      },
      async () => {
        const loops = (untilMs: number) =>
          names.map((name) => (given: AbortSignal) => loop(plan, name, untilMs, given));
        samples.add("cycles/min", await perMinute(blockMs, (untilMs) => sum(signal, loops(untilMs))));
      },
    ];
    for (const turn of block % 2 === 0 ? both : both.toReversed()) await turn();
  }
  for (const raw of raws) await raw.close();
  for (const name of names) await product.removeActor(name);
  const row = {
    actors: ACTORS,
    cyclesPerMinute: samples.spread("cycles/min"),
    rawCyclesPerMinute: samples.spread("raw cycles/min"),
    resume: samples.percentiles("cycle resume"),
    suspend: samples.percentiles("cycle suspend"),
  };
  say(`cycles: ${JSON.stringify(row)}`);
  return {
    keys: {
      cyclesOverRaw: samples.median("cycles/min") / samples.median("raw cycles/min"),
      cyclesPerMinute: samples.median("cycles/min"),
    },
    rows: [row],
  };
}

async function sum(signal: AbortSignal, loops: readonly ((given: AbortSignal) => Promise<number>)[]): Promise<number> {
  return (await allAtOnce(signal, loops)).reduce((total, count) => total + count, 0);
}

/** Over the time until the last one was done. */
async function perMinute(forMs: number, run: (endMs: number) => Promise<number>): Promise<number> {
  const startMs = performance.now();
  const done = await run(Date.now() + forMs);
  return (done / (performance.now() - startMs)) * 60_000;
}

async function loop(
  { ground: { product }, samples }: Plan,
  name: string,
  endMs: number,
  given: AbortSignal,
): Promise<number> {
  let done = 0;
  while (Date.now() < endMs) {
    given.throwIfAborted();
    samples.add("cycle resume", await product.request(name, "POST", `/churn?mib=${CHURN_MIB}&kind=random`));
    samples.add("cycle suspend", await product.suspend(name, "Async"));
    done += 1;
    await delay(WAIT_MS, undefined, { signal: given });
  }
  return done;
}

/** A raw program as its loop expects it: an image in `now`, and a sandbox that waits for it. */
async function asleep({ ground }: Plan): Promise<RawProgram> {
  const raw = await ground.raw({ mib: CHURN_MIB, kind: "random" });
  const imageDir = await raw.nextImage();
  await rawSuspend(raw.sandbox, imageDir);
  await rename(imageDir, join(raw.imagesDir, "now"));
  await rawCreate(raw.sandbox);
  return raw;
}

async function rawLoop({ sandbox, imagesDir }: RawProgram, endMs: number, given: AbortSignal): Promise<number> {
  const { id, bundleDir, netnsPath } = sandbox.spec;
  const inside = new URL(sandbox.url).hostname;
  // the place's own numbering: its first address is the machine's end
  const gateway = inside.replace(/\d+$/, (last) => `${Number(last) - 1}`);
  const places = [sandbox.runscPath, sandbox.rootDir, id, bundleDir, imagesDir, basename(netnsPath)];
  const child = spawn(
    "sh",
    [join(import.meta.dirname, "cycles-raw.sh"), ...places, inside, gateway, `${CHURN_MIB}`, `${Math.round(endMs)}`],
    { stdio: ["ignore", "pipe", "pipe"], timeout: endMs - Date.now() + GRACE_MS, killSignal: "SIGKILL" },
  );
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  // it ends after its cycle, so that no command of runsc is cut off
  const giveUp = (): void => {
    child.kill("SIGTERM");
  };
  given.addEventListener("abort", giveUp);
  const [code, out, said] = await Promise.all([ended, text(child.stdout), text(child.stderr)]);
  given.removeEventListener("abort", giveUp);
  if (code !== 0) throw new Error(`the raw loop of ${id} ended with ${code}: ${said.trim()}, see ${imagesDir}/err`);
  return out.split("\n").filter((line) => line === "done").length;
}
