import { rawCheckpoint, rawEnd, rawStart } from "../raw.ts";
import { answer } from "../../sandbox/rig.ts";
import { gluttonTemplate } from "../template.ts";
import { type RawProgram } from "./ground.ts";
import { type Plan, rounds } from "./plan.ts";

export interface TightKeys {
  /** Of suspends of an actor with 500 MiB held and 64 MiB dirtied in a limit of 600 MiB. */
  tightFailedPercent: number;
  /** The node's checkpoints of it, over those of the same actor with room. */
  tightCheckpointOverRoomy: number;
}

const HELD = { mib: 500, kind: "random" } as const;
const DIRTIED_MIB = 64;
const LIMIT_MIB = 600;
/** No limit: far more than is held and written. */
const ROOMY_MIB = 1600;
const ROUNDS = 20;

/** What is counted and measured. */
export const tightNames = {
  suspend: "tight suspend",
  checkpoint: "tight checkpoint",
  failed: "tight failed",
  roomySuspend: "roomy suspend",
  roomyCheckpoint: "roomy checkpoint",
  rawCheckpoint: "tight raw checkpoint",
  rawFailed: "tight raw failed",
} as const;

/** An actor that has little room beside what it holds, one with much, and plain runsc in the same little room, in turn. */
export async function tight(plan: Plan, endMs: number): Promise<TightKeys> {
  const { ground, samples, signal, say } = plan;
  const { product, image } = ground;
  for (const [name, memoryMib] of [
    ["tight", LIMIT_MIB],
    ["roomy", ROOMY_MIB],
  ] as const) {
    await product.template(gluttonTemplate(name, image, { detachDelay: "10m", store: "direct", memoryMib }));
    await product.actor(name, name);
    await product.hold({ name, ...HELD });
  }
  const raw = await ground.raw(HELD, LIMIT_MIB);
  await rounds({ count: ROUNDS, endMs, signal }, async (round) => {
    const all = [() => tightRound(plan), () => roomyRound(plan), () => rawRound(plan, raw)];
    for (const turn of round % 2 === 0 ? all : all.toReversed()) await turn();
  });
  await raw.close();
  for (const name of ["tight", "roomy"]) await product.remove(name);
  const [failed, rawFailed] = [percent(samples.of(tightNames.failed)), percent(samples.of(tightNames.rawFailed))];
  say(`tight memory: ${failed} % of suspends failed, ${rawFailed} % of plain runsc's checkpoints`);
  return {
    tightFailedPercent: failed,
    tightCheckpointOverRoomy: samples.median(tightNames.checkpoint) / samples.median(tightNames.roomyCheckpoint),
  };
}

/** @param values 1 for each failure, 0 for each success. */
export function percent(values: readonly number[]): number {
  return Math.round((100 * values.reduce((sum, value) => sum + value, 0)) / values.length);
}

async function tightRound({ ground, samples, signal, say }: Plan): Promise<void> {
  const { product } = ground;
  try {
    await product.request("tight", "POST", `/dirty?mib=${DIRTIED_MIB}`);
    samples.add(tightNames.suspend, await product.suspend("tight", "Async"));
    samples.add(tightNames.checkpoint, await product.checkpointMs("tight"));
    samples.add(tightNames.failed, 0);
  } catch (error) {
    signal.throwIfAborted();
    say(`tight memory: ${error instanceof Error ? error.message : String(error)}`);
    samples.add(tightNames.failed, 1);
    await product.hold({ name: "tight", ...HELD });
  }
}

async function roomyRound({ ground: { product }, samples }: Plan): Promise<void> {
  await product.request("roomy", "POST", `/dirty?mib=${DIRTIED_MIB}`);
  samples.add(tightNames.roomySuspend, await product.suspend("roomy", "Async"));
  samples.add(tightNames.roomyCheckpoint, await product.checkpointMs("roomy"));
}

/** As a careless program would do it: what is written is charged to the sandbox. Killed then, it begins anew. */
async function rawRound({ samples, signal }: Plan, { sandbox, nextImage }: RawProgram): Promise<void> {
  const ask = (path: string): Promise<string> => answer(sandbox, "POST", path);
  try {
    await ask(`/dirty?mib=${DIRTIED_MIB}`);
    samples.add(tightNames.rawCheckpoint, await rawCheckpoint(sandbox, await nextImage()));
    samples.add(tightNames.rawFailed, 0);
  } catch {
    signal.throwIfAborted();
    samples.add(tightNames.rawFailed, 1);
    await rawEnd(sandbox);
    await rawStart(sandbox);
    await ask(`/hold?mib=${HELD.mib}&kind=${HELD.kind}`);
  }
}
