import { type LocalCluster } from "@substrate/local/cluster.ts";
import { setTimeout as delay } from "node:timers/promises";
import { inspect } from "node:util";
import { mountViolations, networkViolations } from "./invariants/network.ts";
import { nodeViolations } from "./invariants/node.ts";
import { statusViolations } from "./invariants/status.ts";
import { storeViolations } from "./invariants/store.ts";
import { lookAround } from "./invariants/world.ts";

const pollMs = 100;

/** From what is cheap to ask to what needs programs. */
const looks = [statusViolations, nodeViolations, storeViolations, networkViolations, mountViolations];

/** What is not as it must be once nothing is under way: in the API, on the node, in its kernel, in the store. */
export async function violations(cluster: LocalCluster): Promise<string[]> {
  const world = await lookAround(cluster);
  return looks.flatMap((look) => [...look(world)]);
}

/** Whether there is any, found as cheaply as possible. */
async function isSettled(cluster: LocalCluster): Promise<boolean> {
  const world = await lookAround(cluster);
  return looks.every((look) => look(world).next().done === true);
}

/** Lets the world settle. @returns what is still wrong at the deadline; nothing as soon as nothing is. */
export async function settle(cluster: LocalCluster, deadlineMs: number): Promise<string[]> {
  const end = performance.now() + deadlineMs;
  while (performance.now() < end) {
    // a part that is just starting does not answer
    if (await isSettled(cluster).catch(() => false)) return [];
    await delay(pollMs);
  }
  return violations(cluster).catch((error: unknown) => [inspect(error)]);
}
