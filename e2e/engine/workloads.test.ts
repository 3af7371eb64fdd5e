import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type Template } from "@substrate/crds/index.ts";
import { Agent, request } from "undici";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Product } from "../bench/product.ts";
import { gluttonTemplate } from "../bench/template.ts";
import { buildChatter } from "../programs/chatter.ts";
import { buildGlutton } from "../programs/glutton.ts";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { belongings } from "../support/leftovers.ts";
import { Outside } from "./outside.ts";

let test: TestCluster;
let product: Product;
let outside: Outside;
// the clients' side of connections that are kept: they are to the router, and outlive every sleep
const agent = new Agent({ headersTimeout: 60_000, keepAliveTimeout: 600_000 });

async function ask(name: string, method: "GET" | "POST", path: string): Promise<unknown> {
  const { statusCode, body } = await request(`${test.cluster.routerUrl}${path}`, {
    method,
    headers: { "substrate-actor": `default/${name}` },
    dispatcher: agent,
  });
  const text = await body.text();
  if (statusCode !== 200) throw new Error(`${method} ${path} of ${name}: ${statusCode} ${text}`);
  return JSON.parse(text);
}

function chatterTemplate(image: string): Template {
  const template = gluttonTemplate("chatter", image, { detachDelay: "0s", memoryMib: 256 });
  return { ...template, spec: { ...template.spec, snapshots: { ...template.spec.snapshots, golden: "Never" } } };
}

beforeAll(async () => {
  test = await startTestCluster();
  product = await Product.create(test.cluster);
  outside = await Outside.open();
  const programs = join(test.cluster.stateDir, "programs");
  mkdirSync(programs);
  const glutton = await buildGlutton(join(programs, "glutton"));
  const chatter = await buildChatter(join(programs, "chatter"));
  const common = { detachDelay: "0s", memoryMib: 600 };
  await product.template(gluttonTemplate("in-rootfs", glutton.reference, common));
  await product.template(gluttonTemplate("on-volume", glutton.reference, { ...common, volume: "/work" }));
  await product.template(chatterTemplate(chatter.reference));
  await product.actor("in-rootfs", "in-rootfs");
  await product.actor("on-volume", "on-volume");
  await product.actor("chatter", "chatter");
}, 120_000);

afterAll(async () => {
  await outside.close();
  await product.close();
  await agent.close();
  const { stateDir, id } = test.cluster;
  await test.stop();
  expect(belongings(stateDir, id)).toEqual([]);
});

/** Asleep and awake again by the next request: twice from the node, then from the store. */
async function sleeps(name: string, look: () => Promise<void>): Promise<void> {
  for (const mode of ["Async", "Async", "Sync"] as const) {
    await product.suspend(name, mode);
    if (mode === "Sync") await product.detached(name);
    await look();
  }
}

async function holdings(name: string): Promise<Record<string, unknown>> {
  const { threadTicks, ...held } = (await ask(name, "GET", "/holdings")) as Record<string, unknown>;
  // each thread goes on by itself
  if (Number(held.threads) > 0) expect(threadTicks).toBeGreaterThan(0);
  return held;
}

describe("programs go on where they were, from the node and from the store", { timeout: 60_000 }, () => {
  it("threads, children, open, unlinked, sparse and large files of the rootfs", async () => {
    const name = "in-rootfs";
    const works = [
      "/hold?mib=64&kind=half",
      "/churn?mib=8&kind=zero",
      "/threads?n=8",
      "/children?n=3",
      "/open?path=/work&n=100",
      "/unlinked?path=/work&mib=8",
      "/sparse?path=/work&mib=256",
      "/disk?path=/work&mib=96&files=6&kind=random",
    ];
    for (const work of works) await ask(name, "POST", work);
    let before = await holdings(name);
    expect(before).toMatchObject({
      memory: { mib: 64 },
      threads: 8,
      children: { count: 3 },
      open: { count: 100 },
      unlinked: { count: 1 },
      sparse: { bytes: 256 * 2 ** 20 },
      files: { count: 6, bytes: 96 * 2 ** 20 },
    });
    await sleeps(name, async () => {
      expect(await holdings(name)).toEqual(before);
      await ask(name, "POST", "/churn?mib=4&kind=random");
      await ask(name, "POST", "/disk?path=/work&mib=16&files=4&kind=half");
      before = await holdings(name);
    });
  });

  it("open, unlinked and sparse files of a volume, while its files are written anew", async () => {
    const name = "on-volume";
    const works = [
      "/open?path=/work&n=100",
      "/unlinked?path=/work&mib=8",
      "/sparse?path=/work&mib=256",
      "/disk?path=/work&mib=32&files=8&kind=random",
    ];
    for (const work of works) await ask(name, "POST", work);
    let before = await holdings(name);
    await sleeps(name, async () => {
      expect(await holdings(name)).toEqual(before);
      await ask(name, "POST", "/disk?path=/work&mib=16&files=4&kind=half");
      before = await holdings(name);
    });
  });

  it("a Node server with clients and a server of its own over kept connections", async () => {
    const talk = (): Promise<unknown> => ask("chatter", "GET", `/talk?to=${outside.address}`);
    const first = (await talk()) as { pid: number };
    let talks = 1;
    await sleeps("chatter", async () => {
      // several clients at once find it asleep
      const answers = await Promise.all([talk(), talk(), talk()]);
      talks += answers.length;
      expect(answers).toEqual(
        answers.map(() => expect.objectContaining({ pid: first.pid, answer: "hello from outside" }) as unknown),
      );
      expect(Math.max(...answers.map((answer) => (answer as { talks: number }).talks))).toBe(talks);
    });
  });
});
