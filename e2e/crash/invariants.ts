import { type LocalCluster } from "@substrate/local/cluster.ts";
import { execFile } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { inspect, promisify } from "node:util";
import { mountViolations, networkViolations } from "./invariants/network.ts";
import { loanViolations, nodeViolations } from "./invariants/node.ts";
import { processViolations } from "./invariants/processes.ts";
import { statusViolations } from "./invariants/status.ts";
import { storeViolations } from "./invariants/store.ts";
import { lookAround, type World } from "./invariants/world.ts";

const run = promisify(execFile);
const pollMs = 100;

type Look = (world: World) => Generator<string>;

/** From what is cheap to ask to what needs programs. */
const looks: readonly Look[] = [
  statusViolations,
  nodeViolations,
  storeViolations,
  processViolations,
  networkViolations,
  mountViolations,
];

/** What is not as it must be once nothing is under way: in the API, on the node, in its kernel, in the store. */
async function violations(cluster: LocalCluster, wanted: readonly Look[]): Promise<string[]> {
  const world = await lookAround(cluster);
  return wanted.flatMap((look) => [...look(world)]);
}

/** Whether there is any, found as cheaply as possible. */
async function isSettled(cluster: LocalCluster, wanted: readonly Look[]): Promise<boolean> {
  const world = await lookAround(cluster);
  return wanted.every((look) => look(world).next().done === true);
}

async function settled(cluster: LocalCluster, deadlineMs: number, wanted: readonly Look[]): Promise<string[]> {
  const end = performance.now() + deadlineMs;
  while (performance.now() < end) {
    // a part that is just starting does not answer
    if (await isSettled(cluster, wanted).catch(() => false)) return [];
    await delay(pollMs);
  }
  return violations(cluster, wanted).catch((error: unknown) => [inspect(error)]);
}

/** Lets the world settle. @returns what is still wrong at the deadline; nothing as soon as nothing is. */
export async function settle(cluster: LocalCluster, deadlineMs: number): Promise<string[]> {
  return settled(cluster, deadlineMs, looks);
}

/** As `settle`, with everything written to disk, so that nothing is lent either. */
export async function rest(cluster: LocalCluster, deadlineMs: number): Promise<string[]> {
  await run("sync", ["-f", cluster.nodeDir]);
  return settled(cluster, deadlineMs, [...looks, loanViolations]);
}
