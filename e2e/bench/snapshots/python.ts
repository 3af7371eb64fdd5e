import { setTimeout as delay } from "node:timers/promises";
import { join } from "node:path";
import { buildPython } from "@substrate/examples/programs.ts";
import { type Template } from "@substrate/crds/index.ts";
import { exampleTemplate } from "../example-template.ts";
import { rawCreate, rawLoaded, rawRestore, rawSuspend } from "../raw.ts";
import { type RawProgram } from "./ground.ts";
import { type Plan, rounds } from "./plan.ts";
import { unpacked } from "./unpacked.ts";

export interface PythonKeys {
  /** A request that wakes the Python server from the node, beside the same after a raw restore. */
  pythonCallOverRaw: number;
  /** Its async suspend, beside a raw one. */
  pythonSuspendOverRaw: number;
}

/** With so many values in its dict CPython 3.12 has 245 MiB resident. */
const VALUES = 1_550_000;
const RESIDENT_MIB = 245;
const LIMIT_MIB = 512;
const ROUNDS = 5;
const THINK_MS = 500;
const template = "python-never";
/** Takes a value out of the dict and nothing else. */
const TOUCHES_LITTLE = { method: "GET", path: "/value?key=1" } as const;
/** Writes an SQLite row with a commit and a line of a file, and reads both. */
const VISIT = { method: "GET", path: "/" } as const;

/** What is measured, each beside the same of raw runsc where it has that. */
export const pythonNames = {
  resume: "python resume",
  call: "python first call",
  suspend: "python async suspend",
  syncFirst: "python sync suspend, first",
  syncAgain: "python sync suspend, again",
} as const;

/** The Python server of examples/python, a new one in every round, beside the same program in raw sandboxes. */
export async function python(plan: Plan, endMs: number): Promise<PythonKeys> {
  const { ground, samples, signal, say } = plan;
  const { product, rig } = ground;
  const built = join(rig.dir, "python");
  const { reference } = await buildPython(built);
  await product.template(sized(await exampleTemplate("python", reference, "Never")));
  // no volume: its files are in the sandbox's own layer
  const args = [`--values=${VALUES}`, "--folder=/tmp/data"];
  const program = unpacked("python", join(built, "image"), join(built, "rootfs"), args);
  const raw = await ground.rawAt(await rig.place(program, { memoryMiB: 2 * RESIDENT_MIB + 300 }));
  await rounds({ count: ROUNDS, endMs, signal }, async (round) => {
    const both = [() => rawRound(plan, raw), () => productRound(plan, `python-${round}`)];
    for (const turn of round % 2 === 0 ? both : both.toReversed()) await turn();
  });
  await raw.close();
  for (const name of Object.values(pythonNames)) say(`${name}: ${samples.spread(name)} ms`);
  const over = (name: string): number => samples.median(name) / samples.median(`raw ${name}`);
  return { pythonCallOverRaw: over(pythonNames.call), pythonSuspendOverRaw: over(pythonNames.suspend) };
}

function sized(example: Template): Template {
  const { spec } = example;
  return {
    ...example,
    spec: {
      ...spec,
      containers: spec.containers.map((container) => ({
        ...container,
        args: [...(container.args ?? []), `--values=${VALUES}`],
        resources: { limits: { cpu: "2", memory: `${LIMIT_MIB}Mi` } },
      })),
      snapshots: { ...spec.snapshots, store: "direct", uploadDelay: "10m", uploadWithin: "1h", detachDelay: "10m" },
    },
  };
}

async function productRound({ ground, samples, signal }: Plan, name: string): Promise<void> {
  const { product, serverPort, plain } = ground;
  const think = (): Promise<void> => delay(THINK_MS, undefined, { signal });
  const call = (ask: { method: "GET"; path: string }): Promise<number> => product.request(name, ask.method, ask.path);
  await product.actor(name, template);
  await call(VISIT);
  ground.level(RESIDENT_MIB);
  samples.add(pythonNames.syncFirst, await product.suspend(name, "Sync"));
  samples.add("python plain upload", await plain.upload(RESIDENT_MIB, serverPort));
  await think();
  samples.add(pythonNames.call, await call(VISIT));
  ground.level(RESIDENT_MIB);
  samples.add(pythonNames.suspend, await product.suspend(name, "Async"));
  await think();
  samples.add(pythonNames.resume, await product.resumeByApi(name));
  await call(TOUCHES_LITTLE);
  ground.level(RESIDENT_MIB);
  samples.add(pythonNames.syncAgain, await product.suspend(name, "Sync"));
  await product.removeActor(name);
}

async function rawRound({ ground, samples }: Plan, { sandbox, nextImage }: RawProgram): Promise<void> {
  for (const [name, ask] of [
    [pythonNames.call, VISIT],
    [pythonNames.resume, TOUCHES_LITTLE],
  ] as const) {
    const imageDir = await nextImage();
    ground.level(RESIDENT_MIB);
    samples.add(`raw ${pythonNames.suspend}`, (await rawSuspend(sandbox, imageDir)).totalMs);
    await rawCreate(sandbox);
    samples.add(`raw ${name}`, await rawRestore(sandbox, imageDir, { background: true, ask }));
    await rawLoaded(sandbox);
  }
}
