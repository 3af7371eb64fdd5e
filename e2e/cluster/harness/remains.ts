import { existsSync, readFileSync, rmSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { PodCgroup } from "@substrate/local/pod/pod-cgroup.ts";
import { identify, isAlive, signalProcess } from "@substrate/local/processes/record.ts";
import { type Addresses, MAX_NODES, nodeAddresses } from "./addresses.ts";
import { namespacesOf, processesIn, removeNetwork } from "./network.ts";

const END_TIMEOUT_MS = 15_000;
const POLL_MS = 50;

/**
 * Kills what is in the cluster's network namespaces until nothing is. Each node's first process is among them, and its
 * end is the end of all pods of the node, which have network namespaces of their own.
 */
async function endProcesses(cluster: Addresses): Promise<void> {
  const end = performance.now() + END_TIMEOUT_MS;
  const namespaces = await namespacesOf(cluster);
  for (;;) {
    const pids = (await Promise.all(namespaces.map(processesIn))).flat();
    const alive = pids.flatMap((pid) => identify(pid) ?? []).filter(isAlive);
    if (alive.length === 0) return;
    for (const identity of alive) signalProcess(identity, "SIGKILL");
    if (performance.now() > end) {
      throw new Error(`processes of test cluster ${cluster.slot} survive SIGKILL: ${pids.join(", ")}`);
    }
    await delay(POLL_MS);
  }
}

/** Ends the processes of the cluster in this slot and removes its network, control groups and folder. */
export async function removeRemains(cluster: Addresses, folder: string): Promise<void> {
  await endProcesses(cluster);
  await removeNetwork(cluster);
  for (let number = 1; number <= MAX_NODES; number += 1) {
    await new PodCgroup(nodeAddresses(cluster, number).cgroup).remove();
  }
  // a node's mounts are in a mount namespace of its own and are gone with it; removing through one would be a disaster
  const mounts = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  const mounted = mounts.map((line) => line.split(" ")[4] ?? "").filter((path) => path.startsWith(`${folder}/`));
  if (mounted.length > 0) throw new Error(`unmount these, then try again: ${mounted.join(", ")}`);
  if (existsSync(folder)) rmSync(folder, { recursive: true });
}

/** What the cluster has of the machine now, one line each; empty after its end. */
export async function belongings(cluster: Addresses, folder: string): Promise<string[]> {
  const namespaces = await namespacesOf(cluster);
  const pids = (await Promise.all(namespaces.map(processesIn))).flat();
  const cgroups = Array.from({ length: MAX_NODES }, (_, index) => nodeAddresses(cluster, index + 1).cgroup)
    .flatMap((name) => new PodCgroup(name).folders())
    .filter((path) => existsSync(path));
  const link = `/sys/class/net/${cluster.link}`;
  return [
    ...pids.map((pid) => `process ${pid}`),
    ...namespaces.map((name) => `network namespace ${name}`),
    ...cgroups,
    ...[link, folder].filter((path) => existsSync(path)),
  ];
}
