import { setTimeout as delay } from "node:timers/promises";
import { rawCreate, rawLoaded, rawRestore, rawSuspend } from "../raw.ts";
import { slope } from "../statistics.ts";
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

const TOUCH = "/touch?every=mib";
/** Nobody wakes an actor at once; meanwhile the next sandbox is created, which isn't timed on the raw side either. */
const THINK_MS = 500;

function label({ mib, kind }: Size): string {
  return `${mib} MiB ${kind}`;
}

/** Async suspends and resumes from the node, beside raw ones into and from the same file system, in turn. */
export async function held(plan: Plan): Promise<{ keys: HeldKeys; rows: Row[] }> {
  const { samples, quick } = plan;
  const sizes = (quick === undefined ? [50, 200, 500, 1000] : [200, 1000]).map((mib): Size => ({
    mib,
    kind: "random",
  }));
  const zeros: Size[] = [200, 500].map((mib) => ({ mib, kind: "zero" }));
  const empty: Size = { mib: 0, kind: "zero" };
  // those whose times are divided by each other's take turns
  await together(plan, [empty, ...zeros]);
  for (const size of sizes) await together(plan, [size]);

  const time = (what: string, size: Size): number => samples.median(`${what} ${label(size)}`);
  const ratio = (what: string, raw: string, size: Size): number => time(what, size) / time(raw, size);
  const overEmpty = (what: string): number => Math.max(...zeros.map((size) => time(what, size) / time(what, empty)));
  const rows = [empty, ...zeros, ...sizes].map((size) => ({
    held: label(size),
    suspend: samples.spread(`suspend ${label(size)}`),
    rawSuspend: samples.spread(`raw suspend ${label(size)}`),
    suspendOverRaw: ratio("suspend", "raw suspend", size),
    resume: samples.spread(`resume ${label(size)}`),
    rawResume: samples.spread(`raw resume ${label(size)}`),
    resumeOverRaw: ratio("resume", "raw resume", size),
    touch: samples.spread(`touch ${label(size)}`),
    rawTouch: samples.spread(`raw touch ${label(size)}`),
  }));
  const large = sizes.filter(({ mib }) => mib >= 200);
  return {
    rows,
    keys: {
      resumeEmptyOverRaw: ratio("resume", "raw resume", empty),
      resumeSlopeMsPerMiB: slope([empty, ...sizes].map((size) => ({ x: size.mib, y: time("resume", size) }))),
      resumeTouchOverRaw: ratio("touch", "raw touch", { mib: 1000, kind: "random" }),
      suspendOverRaw: Math.max(...large.map((size) => ratio("suspend", "raw suspend", size))),
      zeroOverEmpty: Math.max(overEmpty("suspend"), overEmpty("resume")),
      zeroResumeOverEmpty: overEmpty("resume"),
      zeroOverEmptyRaw: Math.max(overEmpty("raw suspend"), overEmpty("raw resume")),
    },
  };
}

async function together(plan: Plan, sizes: readonly Size[]): Promise<void> {
  const { ground, quick, say, samples } = plan;
  const { product, image } = ground;
  const subjects: { size: Size; name: string; raw: RawProgram }[] = [];
  for (const size of sizes) {
    const name = `held-${size.mib}-${size.kind}`;
    await product.make({ name, ...size }, image, { detachDelay: "10m", store: "direct" });
    subjects.push({ size, name, raw: await ground.raw(size) });
  }
  const part = sizes.length > 1 ? "zero" : sizes[0]?.mib === 200 ? "200 MiB" : "1000 MiB";
  const count = sizes.length > 1 ? 9 : 5;
  await rounds({ count, budgetMs: quick?.budgetMs(part) ?? 240_000 }, async (round) => {
    for (const subject of subjects) {
      // whoever is second finds what the first left: they change places
      const both = [() => rawRound(plan, subject), () => productRound(plan, subject)];
      for (const turn of round % 2 === 0 ? both : both.toReversed()) await turn();
    }
  });
  for (const { size, name, raw } of subjects) {
    await raw.close();
    await product.remove(name);
    const cells = ["suspend", "raw suspend", "resume", "raw resume", "touch", "raw touch"];
    say(
      `${label(size).padEnd(16)} ${cells.map((cell) => `${cell} ${samples.spread(`${cell} ${label(size)}`)}`).join("  ")}`,
    );
  }
}

async function rawRound({ ground, samples }: Plan, { size, raw }: { size: Size; raw: RawProgram }): Promise<void> {
  const { sandbox, nextImage } = raw;
  for (const [what, restore] of [
    ["raw resume", { background: true }],
    ["raw touch", { background: false, post: TOUCH }],
  ] as const) {
    const imageDir = await nextImage();
    ground.level(size.mib);
    samples.add(`raw suspend ${label(size)}`, (await rawSuspend(sandbox, imageDir)).totalMs);
    await rawCreate(sandbox);
    samples.add(`${what} ${label(size)}`, await rawRestore(sandbox, imageDir, restore));
    if (restore.background) await rawLoaded(sandbox);
  }
}

async function productRound({ ground, samples }: Plan, { size, name }: { size: Size; name: string }): Promise<void> {
  const { product } = ground;
  ground.level(size.mib);
  samples.add(`suspend ${label(size)}`, await product.suspend(name, "Async"));
  await delay(THINK_MS);
  samples.add(`resume ${label(size)}`, await product.resume(name));
  // every page is read, so that the load has ended before the next measurement
  await product.touch(name);
  ground.level(size.mib);
  samples.add(`suspend ${label(size)}`, await product.suspend(name, "Async"));
  await delay(THINK_MS);
  samples.add(`touch ${label(size)}`, await product.request(name, "POST", TOUCH));
  await product.touch(name);
}
