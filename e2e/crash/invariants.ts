import { type LocalCluster } from "@substrate/local/cluster.ts";
import { setTimeout as delay } from "node:timers/promises";
import { mountViolations, networkViolations } from "./invariants/network.ts";
import { nodeViolations } from "./invariants/node.ts";
import { statusViolations } from "./invariants/status.ts";
import { storeViolations } from "./invariants/store.ts";
import { lookAround } from "./invariants/world.ts";

const pollMs = 100;

/** What is not as it must be once nothing is under way: in the API, on the node, in its kernel, in the store. */
export async function violations(cluster: LocalCluster): Promise<string[]> {
  const world = await lookAround(cluster);
  return [
    ...statusViolations(world),
    ...nodeViolations(world),
    ...networkViolations(world),
    ...mountViolations(world),
    ...storeViolations(world),
  ];
}

/** Lets the world settle. @returns what is still wrong at the deadline; nothing as soon as nothing is. */
export async function settle(cluster: LocalCluster, deadlineMs: number): Promise<string[]> {
  const end = performance.now() + deadlineMs;
  for (;;) {
    const found = await violations(cluster).catch((error: unknown) => [String(error)]);
    if (found.length === 0 || performance.now() > end) return found;
    await delay(pollMs);
  }
}
