import { type Template } from "@substrate/crds/index.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Product } from "../bench/product.ts";
import { median } from "../bench/statistics.ts";
import { buildGlutton } from "../programs/glutton.ts";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { eventually } from "../support/poll.ts";

const names = Array.from({ length: 8 }, (_, index) => `g${index}`);
const ROUNDS = 3;
/** So long no other one is made: as many wait as are to. */
const STILL_MS = 600;

let test: TestCluster;
let product: Product;

function template(image: string): Template {
  return {
    apiVersion: "substrate.run/v1alpha1",
    kind: "Template",
    metadata: { name: "small", namespace: "default" },
    spec: {
      containers: [
        {
          name: "glutton",
          image,
          ports: [{ name: "http", containerPort: 8080 }],
          readyz: { httpGet: { path: "/readyz", port: 8080 } },
          resources: { limits: { cpu: "1", memory: "64Mi" } },
        },
      ],
      snapshots: {
        store: "default",
        uploadDelay: "10m",
        uploadWithin: "1h",
        detachDelay: "10m",
        onSuspend: "Memory",
        durability: "Async",
        history: 1,
        golden: "Auto",
      },
      upgrade: "Manual",
      drainTimeout: "10s",
      wakeTimeout: "60s",
    },
  };
}

beforeAll(async () => {
  test = await startTestCluster();
  const { reference } = await buildGlutton(`${test.cluster.stateDir}/glutton`);
  product = await Product.create(test.cluster);
  await product.template(template(reference));
  for (const name of names) await product.actor(name, "small");
});
afterAll(async () => {
  await product.close();
  await test.stop();
});

async function metric(name: string): Promise<number> {
  const answer = await fetch(`${test.cluster.metricsUrls.atelet}/metrics`, { signal: AbortSignal.timeout(5000) });
  const line = (await answer.text()).split("\n").find((one) => one.startsWith(`${name} `));
  return Number(line?.slice(name.length + 1) ?? 0);
}

async function sleep(all: readonly string[]): Promise<void> {
  for (const name of all) await product.suspend(name, "Async");
}

/** So that what is compared begins alike: sandboxes wait, and no further ones are being made. */
async function warm(): Promise<void> {
  let seen = 0;
  let sinceMs = performance.now();
  await eventually(
    async () => {
      const count = await metric("substrate_warm_sandboxes");
      if (count !== seen) sinceMs = performance.now();
      seen = count;
      expect(count).toBeGreaterThan(0);
      expect(performance.now() - sinceMs).toBeGreaterThan(STILL_MS);
    },
    { deadlineMs: 60_000, everyMs: 100 },
  );
}

describe("wakes", { concurrent: false, timeout: 120_000 }, () => {
  it("a first start from the golden snapshot, and each wake after it, restores into a sandbox that waited", async () => {
    const [first = ""] = names;
    await product.resume(first);
    const taken = await metric('substrate_warm_sandboxes_total{outcome="taken"}');
    for (let round = 0; round < ROUNDS; round++) {
      await sleep([first]);
      await warm();
      await product.resume(first);
    }
    expect(await metric('substrate_warm_sandboxes_total{outcome="taken"}')).toBe(taken + 3);
    expect(await metric('substrate_warm_sandboxes_total{outcome="unfit"}')).toBe(0);
    await sleep([first]);
  });

  it("eight at once end no later than eight in a row", async () => {
    for (const name of names) await product.resume(name);
    await sleep(names);
    const inARow: number[] = [];
    const atOnce: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      await warm();
      const burstMs = performance.now();
      const each = await Promise.all(names.map((name) => product.resume(name)));
      atOnce.push(performance.now() - burstMs);
      expect(each).toHaveLength(names.length);
      await sleep(names);
      await warm();
      const rowMs = performance.now();
      for (const name of names) await product.resume(name);
      inARow.push(performance.now() - rowMs);
      await sleep(names);
    }
    expect(median(atOnce)).toBeLessThan(median(inARow));
  });
});
