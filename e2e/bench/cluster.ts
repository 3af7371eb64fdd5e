import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Template } from "@substrate/crds/index.ts";
import { buildCounter } from "@substrate/examples/programs.ts";
import { renderExample } from "@substrate/examples/render.ts";
import { buildImages } from "@substrate/images/build.ts";
import { startLocalCluster } from "@substrate/local/cluster.ts";
import { parseAllDocuments } from "yaml";
import { z } from "zod";
import { TestCluster } from "../cluster/harness/cluster.ts";
import { installSubstrate, loadSubstrateImages } from "../cluster/harness/substrate.ts";
import { pushExample } from "../cluster/installation.ts";
import { tools } from "../support/tools.ts";
import { Product } from "./product.ts";
import { median } from "./statistics.ts";

const MIB = 1024 ** 2;
const SLEEPING = 100;
const RUNNING = 10;
/** The kubelet's own figures are some seconds old; CPU is their difference over this time. */
const REST_MS = 30_000;
const READY_TIMEOUT_MS = 180_000;
const PARTS = ["operator", "atelet", "router"] as const;
type PartName = (typeof PARTS)[number];

/** What one pod of a part takes, the largest of its pods. */
export interface ClusterRow {
  /** `at rest`, `100 sleeping`, `10 running` (of the 100). */
  state: string;
  part: PartName;
  /** Working set as the kubelet counts it; of the atelet without its actors' sandboxes only at rest. */
  memoryMib: number;
  cpuMillicores: number;
}

export interface ClusterResult {
  rounds: number;
  rows: ClusterRow[];
  /** From `helm install`, images on the nodes, until a new actor's first request is answered. */
  installSeconds: number;
  /** First byte of a request that wakes a sleeping actor, median, through the router's Service. */
  wakeInClusterMs: number;
  /** The same in local mode, in the same run. */
  wakeLocalMs: number;
  wakeOverLocal: number;
  operatorImageMib: number;
  ateletImageMib: number;
  routerImageMib: number;
}

interface Options {
  rounds: number;
  say: (line: string) => void;
  signal: AbortSignal;
}

/** An installed chart on two real nodes, beside local mode on the same machine. */
export async function cluster({ rounds, say, signal }: Options): Promise<ClusterResult> {
  await using undo = new AsyncDisposableStack();
  const sizes = new Map((await buildImages({ names: PARTS })).map(({ name, sizeBytes }) => [name, sizeBytes / MIB]));
  signal.throwIfAborted();
  const wakeLocalMs = await inLocalMode(rounds, signal);
  say(`wake in local mode ${wakeLocalMs.toFixed(0)} ms`);
  const real = await TestCluster.start();
  undo.defer(() => real.stop());
  signal.throwIfAborted();
  const image = await pushExample(real, "counter");
  await loadSubstrateImages(real, { examples: [] });
  signal.throwIfAborted();
  const startMs = performance.now();
  await installSubstrate(real, { examples: [] });
  const product = await Product.create({ client: real.client, routerUrl: await routerUrl(real) }, signal);
  undo.defer(() => product.close());
  await product.template(await counterTemplate(image));
  await product.actor("bench-1", "counter");
  await product.resume("bench-1");
  const installSeconds = (performance.now() - startMs) / 1000;
  say(`helm install to the first answer ${installSeconds.toFixed(1)} s`);
  const wakeInClusterMs = await wakes(product, rounds);
  say(`wake in the cluster ${wakeInClusterMs.toFixed(0)} ms`);

  const rows = await pressure(real, "at rest", { say, signal });
  for (let number = 2; number <= SLEEPING; number += 1) await product.actor(`bench-${number}`, "counter");
  for (let number = 1; number <= SLEEPING; number += 1) {
    await product.resume(`bench-${number}`);
    await product.suspend(`bench-${number}`, "Async");
  }
  rows.push(...(await pressure(real, `${SLEEPING} sleeping`, { say, signal })));
  for (let number = 1; number <= RUNNING; number += 1) await product.resume(`bench-${number}`);
  rows.push(...(await pressure(real, `${RUNNING} of them running`, { say, signal })));
  return {
    rounds,
    rows,
    installSeconds,
    wakeInClusterMs,
    wakeLocalMs,
    wakeOverLocal: wakeInClusterMs / wakeLocalMs,
    operatorImageMib: sizes.get("operator") ?? NaN,
    ateletImageMib: sizes.get("atelet") ?? NaN,
    routerImageMib: sizes.get("router") ?? NaN,
  };
}

async function inLocalMode(rounds: number, signal: AbortSignal): Promise<number> {
  await using undo = new AsyncDisposableStack();
  const stateDir = await mkdtemp(join(tmpdir(), "sub-bench-"));
  undo.defer(() => rm(stateDir, { recursive: true, force: true }));
  const local = await startLocalCluster({ stateDir, say: () => undefined, tools, signal });
  undo.defer(() => local.stop());
  const product = await Product.create(local, signal);
  undo.defer(() => product.close());
  const { reference } = await buildCounter(join(stateDir, "counter"), signal);
  await product.template(await counterTemplate(reference));
  await product.actor("bench-1", "counter");
  return await wakes(product, rounds);
}

async function wakes(product: Product, rounds: number): Promise<number> {
  const times: number[] = [];
  await product.resume("bench-1");
  for (let round = 1; round <= rounds; round += 1) {
    await product.suspend("bench-1", "Async");
    times.push(await product.resume("bench-1"));
  }
  return median(times);
}

async function counterTemplate(image: string): Promise<Template> {
  const documents = parseAllDocuments(await renderExample("counter", { image })).map((each) => each.toJS() as Template);
  const template = documents.find(({ kind }) => kind === "Template");
  if (template === undefined) throw new Error("the example has no Template");
  return { ...template, metadata: { ...template.metadata, namespace: "default" } };
}

async function routerUrl(real: TestCluster): Promise<string> {
  const args = ["-n", "substrate-system", "get", "service", "substrate-router", "-o", "jsonpath={.spec.clusterIP}"];
  return `http://${await real.kubectl(args)}`;
}

const summarySchema = z.object({
  pods: z.array(
    z.object({
      podRef: z.object({ name: z.string() }),
      memory: z.object({ workingSetBytes: z.number() }).optional(),
      cpu: z.object({ usageCoreNanoSeconds: z.number() }).optional(),
    }),
  ),
});

interface Usage {
  memoryBytes: number;
  cpuNanoseconds: number;
  atMs: number;
}

/** Of each pod of a part, from its kubelet. */
async function usages(real: TestCluster): Promise<Map<string, Usage>> {
  const found = new Map<string, Usage>();
  for (const { name } of real.nodes) {
    const text = await real.kubectl(["get", "--raw", `/api/v1/nodes/${name}/proxy/stats/summary`]);
    for (const { podRef, memory, cpu } of summarySchema.parse(JSON.parse(text)).pods) {
      if (!podRef.name.startsWith("substrate-") || memory === undefined || cpu === undefined) continue;
      found.set(podRef.name, {
        memoryBytes: memory.workingSetBytes,
        cpuNanoseconds: cpu.usageCoreNanoSeconds,
        atMs: performance.now(),
      });
    }
  }
  return found;
}

async function pressure(
  real: TestCluster,
  state: string,
  { say, signal }: Pick<Options, "say" | "signal">,
): Promise<ClusterRow[]> {
  const untilMs = performance.now() + READY_TIMEOUT_MS;
  let before = await usages(real);
  // two of each
  while (before.size < 2 * PARTS.length) {
    if (performance.now() > untilMs) throw new Error(`kubelets know of ${before.size} pods only`);
    await delay(1_000, undefined, { signal });
    before = await usages(real);
  }
  await delay(REST_MS, undefined, { signal });
  const after = await usages(real);
  return PARTS.map((part) => {
    const pods = [...after].filter(([name]) => name.startsWith(`substrate-${part}-`));
    const memory = pods.map(([, { memoryBytes }]) => memoryBytes / MIB);
    const cpu = pods.map(([name, { cpuNanoseconds, atMs }]) => {
      const was = before.get(name);
      return was === undefined ? 0 : (cpuNanoseconds - was.cpuNanoseconds) / 1e6 / ((atMs - was.atMs) / 1000);
    });
    const row = { state, part, memoryMib: Math.max(...memory), cpuMillicores: Math.max(...cpu) };
    say(
      `${state.padEnd(22)} ${part.padEnd(9)} ${row.memoryMib.toFixed(0)} MiB, ${row.cpuMillicores.toFixed(0)} millicores`,
    );
    return row;
  });
}
