import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@substrate/lib/log.ts";
import fc from "fast-check";
import pLimit from "p-limit";
import { expect, it } from "vitest";
import { namesIn } from "../node-files.ts";
import { ActorVolumes } from "./actor-volumes.ts";
import { FakeMounts } from "./fake-mounts.ts";
import { type Layer, noVolumes, sameLayer, type VolumeStack, withFlattened } from "./stack.ts";

type Content = Record<string, string>;

interface Generation {
  stacks: VolumeStack[];
  content: Content;
}

const FILES = ["a", "b", "c"];
const MOUNTS = [{ name: "data", mountPath: "/data" }];

/** One actor's volume beside what it must hold by the rules. */
class Model {
  readonly dir: string;
  readonly mounts = new FakeMounts();
  record = { volumes: noVolumes() };
  saved = structuredClone(this.record);
  generations: Generation[] = [];
  live: Content = {};
  running: { restored: Generation | undefined; content: Content } | undefined;
  volumes: ActorVolumes;
  #made = 0;

  constructor(dir: string) {
    this.dir = dir;
    this.volumes = this.#make();
  }

  #make(): ActorVolumes {
    const log = createLogger("test", "crit");
    log.silent = true;
    return new ActorVolumes({
      tools: { mounts: this.mounts, jobs: pLimit(1), originsDir: join(this.dir, "origins") },
      dir: join(this.dir, "volumes"),
      name: "default/a",
      record: this.record,
      frozen: () => this.generations.flatMap(({ stacks }) => stacks),
      kept: () => [],
      rewriteFrozen: (name, flattened, into) => {
        for (const generation of this.generations) {
          generation.stacks = generation.stacks.map(({ name: volume, layers }) => ({
            name: volume,
            layers: volume === name ? (withFlattened(layers, flattened, into) ?? layers) : layers,
          }));
        }
        return Promise.resolve();
      },
      save: () => {
        this.#save();
        return Promise.resolve();
      },
      log,
    });
  }

  #save(): void {
    this.saved = structuredClone(this.record);
  }

  get mnt(): string {
    return join(this.dir, "volumes", "data", "mnt");
  }

  /** From the newest generation's memory, or cold with what is there. */
  async start(restore: boolean, fails: boolean): Promise<void> {
    if (this.running !== undefined) return;
    const from = restore ? this.generations.at(-1) : undefined;
    const source = from === undefined ? this.record.volumes : { base: this.record.volumes.base, stacks: from.stacks };
    await this.volumes.attach(MOUNTS, () => source);
    if (fails) {
      await this.mounts.write(this.mnt, "a", "of a start that failed");
      await this.volumes.detach();
      return;
    }
    this.volumes.started({ cold: from === undefined });
    this.running = { restored: from, content: { ...(from?.content ?? this.live) } };
    this.#save();
  }

  async write(file: string): Promise<void> {
    if (this.running === undefined) return;
    const content = `${++this.#made}`;
    await this.mounts.write(this.mnt, file, content);
    this.running.content[file] = content;
  }

  /** @param killed the atelet is, right after the commit. */
  async suspend(killed: boolean): Promise<void> {
    const { running } = this;
    if (running === undefined) return;
    await this.volumes.exclusive(() => {
      this.generations.push({ stacks: this.record.volumes.stacks, content: running.content });
      this.volumes.saved({ generation: this.generations.length, epoch: 1 });
      return Promise.resolve();
    });
    if (killed) {
      await this.restart(false);
      this.volumes.saved({ generation: this.generations.length, epoch: 1 });
      return;
    }
    await this.#ended(running.content);
    this.volumes.flattenSoon();
  }

  /** The sandbox died: a cold start would find what it wrote. */
  async crash(): Promise<void> {
    if (this.running !== undefined) await this.#ended(this.running.content);
  }

  async #ended(content: Content): Promise<void> {
    await this.volumes.detach();
    this.live = content;
    this.running = undefined;
    this.#save();
  }

  async settled(): Promise<void> {
    await this.volumes.settled();
  }

  async collect(): Promise<void> {
    this.generations.shift();
    this.volumes.collectSoon();
    await this.volumes.settled();
  }

  /** kill -9 of the atelet: what is on the disk counts; the sandbox lives on or died meanwhile. */
  async restart(survives: boolean): Promise<void> {
    await this.volumes.settled();
    this.record = structuredClone(this.saved);
    this.volumes = this.#make();
    const { running } = this;
    await this.volumes.load(running !== undefined && survives);
    if (running !== undefined && !survives) {
      this.live = running.content;
      this.running = undefined;
    }
  }

  /** What runs and what was saved hold what they must, and every layer on the disk is somebody's. */
  async check(): Promise<void> {
    await this.volumes.settled();
    for (const file of this.running === undefined ? [] : FILES) {
      expect(await this.mounts.read(this.mnt, file)).toBe(this.running?.content[file]);
    }
    for (const { stacks, content } of this.generations) {
      for (const file of FILES) expect(await this.#read(stacks[0]?.layers ?? [], file)).toBe(content[file]);
    }
    const named = [...this.record.volumes.stacks, ...this.generations.flatMap(({ stacks }) => stacks)];
    const mounted = (await this.mounts.below(this.dir)).flatMap(({ layers }) => layers);
    for (const name of await namesIn(join(this.dir, "volumes", "data", "layers"))) {
      const layer = { own: Number(name) };
      const wanted = named.some(({ layers }) => layers.some((other) => sameLayer(layer, other)));
      expect(wanted || mounted.includes(`layers/${name}/data`), `layer ${name}`).toBe(true);
    }
    expect((await namesIn(join(this.dir, "volumes"))).filter((name) => name !== "data")).toEqual([]);
  }

  async #read(layers: readonly Layer[], file: string): Promise<string | undefined> {
    for (const layer of layers) {
      const data = "own" in layer ? join(this.dir, "volumes", "data", "layers", String(layer.own), "data") : "";
      if ((await readdir(data)).includes(file)) return readFile(join(data, file), "utf8");
    }
    return undefined;
  }
}

type Step = (model: Model) => Promise<void>;

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.tuple(fc.boolean(), fc.nat(4)).map(
      ([restore, fate]): Step =>
        (model) =>
          model.start(restore, fate === 0),
    ),
  },
  {
    weight: 4,
    arbitrary: fc.constantFrom(...FILES).map(
      (file): Step =>
        (model) =>
          model.write(file),
    ),
  },
  {
    weight: 4,
    arbitrary: fc.nat(4).map(
      (fate): Step =>
        (model) =>
          model.suspend(fate === 0),
    ),
  },
  { weight: 1, arbitrary: fc.constant<Step>((model) => model.crash()) },
  { weight: 1, arbitrary: fc.constant<Step>((model) => model.collect()) },
  {
    weight: 1,
    arbitrary: fc.boolean().map(
      (survives): Step =>
        (model) =>
          model.restart(survives),
    ),
  },
);

it("holds what it must, and no layer that nobody names, whatever is started, saved, killed and restarted", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const dir = await mkdtemp(join(tmpdir(), "volumes-"));
      try {
        const model = new Model(dir);
        for (const next of steps) {
          await next(model);
          await model.check();
        }
      } finally {
        await rm(dir, { recursive: true });
      }
    }),
    { numRuns: 100 },
  );
});

it("makes one layer of many, once nobody has them mounted, and packs and unpacks what a stack holds", async () => {
  const dir = await mkdtemp(join(tmpdir(), "volumes-"));
  try {
    const model = new Model(dir);
    for (let turn = 0; turn < 12; turn += 1) {
      await model.start(turn > 0, false);
      await model.write(FILES[turn % 3] ?? "a");
      await model.suspend(false);
      await model.collect();
      await model.check();
    }
    model.volumes.flattenSoon();
    await model.settled();
    await model.check();
    expect(model.record.volumes.stacks[0]?.layers.length).toBeLessThan(9);
    const stacks = model.record.volumes.stacks;
    const packed = await model.volumes.pack(() => stacks, join(dir, "scratch"));
    const other = new Model(join(dir, "other"));
    await other.volumes.unpack(packed, (unpacked) => {
      other.generations.push({ stacks: unpacked, content: model.live });
      return Promise.resolve();
    });
    await other.check();
    await other.start(true, false);
    await other.check();
  } finally {
    await rm(dir, { recursive: true });
  }
});

it("refuses a program that lacks a volume, and leaves nothing when a mount fails", async () => {
  const dir = await mkdtemp(join(tmpdir(), "volumes-"));
  try {
    const model = new Model(dir);
    model.mounts.failNext = new Error("no");
    await expect(model.volumes.attach(MOUNTS, noVolumes)).rejects.toThrow("no");
    await model.volumes.settled();
    expect(await namesIn(join(dir, "volumes"))).toEqual([]);
    await model.start(false, false);
    await model.suspend(false);
    await expect(model.volumes.attach([], () => model.record.volumes)).rejects.toMatchObject({
      code: "INVALID",
      message: expect.stringContaining("volume data that this revision of its Template lacks") as string,
    });
    expect(await model.mounts.below(dir)).toEqual([]);
  } finally {
    await rm(dir, { recursive: true });
  }
});
