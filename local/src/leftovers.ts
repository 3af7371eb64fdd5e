import { readdirSync } from "node:fs";
import { firstProcess, heedsSigterm } from "./pod/pod.ts";
import { PodCgroup } from "./pod/pod-cgroup.ts";
import { PodNetwork } from "./pod/pod-network.ts";
import { ATELET_GRACE_MS } from "./parts.ts";
import {
  isAlive,
  type ProcessIdentity,
  readRecord,
  removeRecord,
  signalProcess,
  waitForEnd,
} from "./processes/record.ts";
import { type StateFolder } from "./state-folder.ts";

const END_TIMEOUT_MS = 10_000;

async function end(name: string, identity: ProcessIdentity, signal: AbortSignal | undefined): Promise<void> {
  // A pod that outlived its cluster still has running actors: it gets the time to suspend them.
  const first = name === "atelet" ? firstProcess(identity) : undefined;
  if (first !== undefined && heedsSigterm(first)) {
    signalProcess(first, "SIGTERM");
    await waitForEnd(identity, ATELET_GRACE_MS + END_TIMEOUT_MS, signal);
  }
  signalProcess(identity, "SIGKILL");
  if (!(await waitForEnd(identity, END_TIMEOUT_MS, signal)))
    throw new Error(`${name} (pid ${identity.pid}) survived SIGKILL`);
}

/**
 * Ends and removes what a cluster on this folder left when it was killed. Does nothing after a clean end. Given up, the
 * rest stays for the next call.
 */
export async function removeLeftovers(
  state: StateFolder,
  say: (line: string) => void,
  signal?: AbortSignal,
): Promise<void> {
  const records = readdirSync(state.file("run"))
    .filter((file) => file.endsWith(".json"))
    .map((file) => ({ name: file.slice(0, -".json".length), path: state.file("run", file) }));
  if (records.length === 0) return;
  const alive = records.flatMap(({ name, path }) => {
    const identity = readRecord(path);
    return identity !== undefined && isAlive(identity) ? [{ name, identity }] : [];
  });
  say(`the last run on this folder was killed: ending ${alive.length} processes and removing its network and cgroups`);
  // the atelet first: the others serve it while it suspends
  const atelets = alive.filter(({ name }) => name === "atelet");
  const others = alive.filter(({ name }) => name !== "atelet");
  for (const { name, identity } of atelets) await end(name, identity, signal);
  await Promise.all(others.map(({ name, identity }) => end(name, identity, signal)));
  const { subnet } = state.readSettings();
  if (subnet !== undefined) {
    const network = new PodNetwork(state.id, subnet, []);
    await network.remove();
    await network.release();
  }
  await new PodCgroup(state.id).remove();
  for (const { path } of records) removeRecord(path);
}
