import { setTimeout as delay } from "node:timers/promises";
import { rawCreate, rawLoaded, rawRestore, rawSuspend } from "../raw.ts";
import { line } from "../statistics.ts";
import { copies } from "./copies.ts";
import { type RawProgram } from "./ground.ts";
import { type Plan, type Row, rounds } from "./plan.ts";

export interface HeldKeys {
  /** Of an actor that holds nothing, beside a background restore into a sandbox that was created before. */
  resumeEmptyOverRaw: number;
  /** First byte over random memory held that the request doesn't touch. */
  resumeSlopeMsPerMiB: number;
  /** One byte of each of 1,000 MiB, beside a foreground restore and the same request. */
  resumeTouchOverRaw: number;
  /** The largest of 200 MiB and more. */
  suspendOverRaw: number;
  /** The largest of suspends and resumes of 200 and 500 MiB of zeros, over those of nothing. */
  zeroOverEmpty: number;
  /** Of these, the resumes alone. */
  zeroResumeOverEmpty: number;
  /** The same as `zeroOverEmpty` of raw runsc. */
  zeroOverEmptyRaw: number;
}

interface Size {
  mib: number;
  kind: "random" | "zero";
}

const TOUCH = { method: "POST", path: "/touch?every=mib" } as const;
/** Nobody wakes an actor at once; meanwhile the next sandbox is created, which isn't timed on the raw side either. */
const THINK_MS = 500;
const ROUNDS = 9;
const CHEAP_MIB = 200;

const empty: Size = { mib: 0, kind: "random" };
const zeros: readonly Size[] = [200, 500].map((mib) => ({ mib, kind: "zero" }));

/** MiB of random memory that the tables are over. */
export function heldMib(quick: boolean): number[] {
  return quick ? [0, 200, 1000] : [0, 50, 200, 500, 1000];
}

export function label({ mib, kind }: Size): string {
  return mib === 0 ? "0 MiB" : `${mib} MiB ${kind}`;
}

/**
 * Async suspends and resumes from the node, beside raw ones into and from the same file system. All sizes take turns, so
 * that a machine that gets slower meanwhile bends no slope.
 */
export async function held(plan: Plan, endMs: number): Promise<{ keys: HeldKeys; rows: Row[] }> {
  const { samples, quick, signal } = plan;
  const random = heldMib(quick).map((mib): Size => ({ mib, kind: "random" }));
  const sizes = [...random.slice(0, 1), ...zeros, ...random.slice(1)];
  const subjects: Subject[] = [];
  for (const size of sizes) subjects.push(await subject(plan, size));
  await rounds({ count: ROUNDS, endMs, signal }, async (round) => {
    for (const each of subjects) {
      // a quick run has time for few rounds of the large sizes; the small ones are cheap
      const turns = quick && each.size.mib <= CHEAP_MIB ? 2 : 1;
      for (let number = round; number < round + turns; number += 1) {
        // whoever is second finds what the first left: they change places
        const both = [() => rawRound(plan, each), () => productRound(plan, each)];
        for (const turn of number % 2 === 0 ? both : both.toReversed()) await turn();
      }
    }
  });
  for (const { name, raw } of subjects) {
    await raw.close();
    await plan.ground.product.remove(name);
  }

  const time = (what: string, size: Size): number => samples.median(`${what} ${label(size)}`);
  const ratio = (what: string, raw: string, size: Size): number => time(what, size) / time(raw, size);
  const overEmpty = (what: string): number => Math.max(...zeros.map((size) => time(what, size) / time(what, empty)));
  const large = random.filter(({ mib }) => mib >= 200);
  return {
    rows: sizes.map((size) => rowOf(plan, size, ratio)),
    keys: {
      resumeEmptyOverRaw: ratio("resume", "raw resume", empty),
      resumeSlopeMsPerMiB: line(random.map((size) => ({ x: size.mib, y: time("resume", size) }))).slope,
      resumeTouchOverRaw: ratio("touch", "raw touch", { mib: 1000, kind: "random" }),
      suspendOverRaw: Math.max(...large.map((size) => ratio("suspend", "raw suspend", size))),
      zeroOverEmpty: Math.max(overEmpty("suspend"), overEmpty("resume")),
      zeroResumeOverEmpty: overEmpty("resume"),
      zeroOverEmptyRaw: Math.max(overEmpty("raw suspend"), overEmpty("raw resume")),
    },
  };
}

function rowOf(
  { samples }: Plan,
  size: Size,
  ratio: (what: string, raw: string, size: Size) => number,
): Record<string, number | string> {
  const spread = (what: string): string => samples.spread(`${what} ${label(size)}`);
  return {
    held: label(size),
    rounds: samples.of(`resume ${label(size)}`).length,
    suspend: spread("suspend"),
    rawSuspend: spread("raw suspend"),
    suspendOverRaw: ratio("suspend", "raw suspend", size),
    resume: spread("resume"),
    rawResume: spread("raw resume"),
    resumeOverRaw: ratio("resume", "raw resume", size),
    touch: spread("touch"),
    rawTouch: spread("raw touch"),
    touchOverRaw: ratio("touch", "raw touch", size),
  };
}

interface Subject {
  size: Size;
  name: string;
  raw: RawProgram;
}

async function subject({ ground }: Plan, size: Size): Promise<Subject> {
  const name = `held-${size.mib}-${size.kind}`;
  await ground.product.make({ name, ...size }, ground.image, { detachDelay: "10m", store: "direct" });
  return { size, name, raw: await ground.raw(size) };
}

async function rawRound(plan: Plan, { size, raw }: Subject): Promise<void> {
  const { ground, samples } = plan;
  const { sandbox, nextImage } = raw;
  for (const [what, restore] of [
    ["raw resume", { background: true }],
    ["raw touch", { background: false, ask: TOUCH }],
  ] as const) {
    const imageDir = await nextImage();
    ground.level(size.mib);
    samples.add(`raw suspend ${label(size)}`, (await rawSuspend(sandbox, imageDir)).totalMs);
    await rawCreate(sandbox);
    samples.add(`${what} ${label(size)}`, await rawRestore(sandbox, imageDir, restore));
    if (restore.background) await rawLoaded(sandbox);
    else if (size.kind === "random") await copies(plan, imageDir, label(size));
  }
}

async function productRound({ ground, samples, signal }: Plan, { size, name }: Subject): Promise<void> {
  const { product } = ground;
  ground.level(size.mib);
  samples.add(`suspend ${label(size)}`, await product.suspend(name, "Async"));
  await delay(THINK_MS, undefined, { signal });
  samples.add(`resume ${label(size)}`, await product.resume(name));
  // every page is read, so that the load has ended before the next measurement
  await product.touch(name);
  ground.level(size.mib);
  samples.add(`suspend ${label(size)}`, await product.suspend(name, "Async"));
  await delay(THINK_MS, undefined, { signal });
  samples.add(`touch ${label(size)}`, await product.request(name, TOUCH.method, TOUCH.path));
  await product.touch(name);
}
