import { linkSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { actors } from "@substrate/crds/index.ts";
import { buildCounter, buildNode, buildPython } from "@substrate/examples/programs.ts";
import { type LocalCluster, startLocalCluster } from "@substrate/local/cluster.ts";
import { buildGlutton } from "../programs/glutton.ts";
import { exampleTemplate } from "./example-template.ts";
import { Product } from "./product.ts";
import { tools } from "../support/tools.ts";

/** Memory images of one actor, one after the other. */
export interface Series {
  program: string;
  /** Paths of pages.img; they stay until the folder goes. */
  images: string[];
}

interface Program {
  name: string;
  build: (outDir: string) => Promise<{ reference: string }>;
  /** Between two suspends. */
  work: (send: (method: "GET" | "POST", path: string) => Promise<number>) => Promise<void>;
}

const requests = 200;
const gluttonMib = 500;
/** Pages spread over all that is held: 5 %. */
const dirtiedMib = 25;

async function repeat(times: number, action: (i: number) => Promise<unknown>): Promise<void> {
  for (let i = 0; i < times; i += 1) await action(i);
}

const examples: Program[] = [
  { name: "counter", build: buildCounter, work: (send) => repeat(requests, () => send("GET", "/")) },
  { name: "node", build: buildNode, work: (send) => repeat(requests, () => send("GET", "/random")) },
  {
    name: "python",
    build: buildPython,
    work: (send) => repeat(requests, (i) => send("GET", i % 2 === 0 ? "/" : `/value?key=${i * 4999}`)),
  },
];

export interface CaptureOptions {
  generations: number;
  say: (line: string) => void;
  signal: AbortSignal;
}

/** Lets actors work, sleep and wake in a local cluster, and keeps the image of each sleep. */
export async function captureSeries(dir: string, { generations, say, signal }: CaptureOptions): Promise<Series[]> {
  await using undo = new AsyncDisposableStack();
  const cluster = await startLocalCluster({ stateDir: join(dir, "cluster"), say: () => undefined, tools, signal });
  undo.defer(() => cluster.stop());
  const product = await Product.create(cluster, signal);
  undo.defer(() => product.close());
  const series: Series[] = [];
  for (const { name, build, work } of examples) {
    const { reference } = await build(join(dir, name));
    await product.template(await exampleTemplate(name, reference, "Never"));
    await product.actor(name, `${name}-never`);
    await product.resume(name);
    series.push(await capture(dir, product, await generationsOf(cluster, name), name, generations, work));
    await product.removeActor(name);
    say(`${name}: ${generations} images`);
  }
  const { reference } = await buildGlutton(join(dir, "glutton"), signal);
  await product.make({ name: "glutton", mib: gluttonMib, kind: "random" }, reference, { detachDelay: "10m" });
  const dirty: Program["work"] = async (send) => {
    await send("POST", `/churn?mib=${dirtiedMib}&kind=random`);
  };
  series.push(await capture(dir, product, await generationsOf(cluster, "glutton"), "glutton", generations, dirty));
  say(`glutton: ${generations} images`);
  return series;
}

async function capture(
  dir: string,
  product: Product,
  folder: string,
  name: string,
  generations: number,
  work: Program["work"],
): Promise<Series> {
  const kept = join(dir, "series", name);
  mkdirSync(kept, { recursive: true });
  const images: string[] = [];
  for (let i = 0; i < generations; i += 1) {
    await work((method, path) => product.request(name, method, path));
    await product.suspend(name, "Async");
    const image = join(kept, `${String(i).padStart(2, "0")}.img`);
    linkSync(newestImage(folder), image);
    images.push(image);
    await product.resume(name);
  }
  return { program: name, images };
}

async function generationsOf(cluster: LocalCluster, name: string): Promise<string> {
  const actor = await cluster.client.get(actors, name, "default");
  return join(cluster.nodeDir, "actors", actor?.metadata.uid ?? "", "generations");
}

function newestImage(folder: string): string {
  const generations = readdirSync(folder).filter((name) => /^\d+$/.test(name));
  return join(folder, String(Math.max(...generations.map(Number))), "image", "pages.img");
}
