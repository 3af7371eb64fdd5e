import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { clustersFolder } from "@substrate/local/config.ts";
import { type FileLock, tryLock } from "@substrate/local/flock.ts";
import { type Addresses, addressesOf, SLOTS } from "./addresses.ts";
import { removeRemains } from "./remains.ts";

const keptSchema = z.object({
  nodes: z.array(z.string()),
  kubeconfig: z.string(),
  s3: z.object({ url: z.string(), accessKeyId: z.string(), secretAccessKey: z.string(), bucket: z.string() }),
  registry: z.string(),
});
/** What a cluster that outlives its starter says of itself. */
export type Kept = z.infer<typeof keptSchema>;

function folderOf(slot: number): string {
  return join(clustersFolder(), `${slot}`);
}

export function lockFileOf(slot: number): string {
  return join(clustersFolder(), `${slot}.lock`);
}

/** The folder of one cluster and the right to its slot, which ends with this process. */
export class ClusterState {
  readonly addresses: Addresses;
  readonly path: string;
  readonly #lock: FileLock;

  constructor(slot: number, lock: FileLock) {
    this.addresses = addressesOf(slot);
    this.path = folderOf(slot);
    this.#lock = lock;
  }

  /** Takes the first slot that nobody uses, after removing what killed runs left in others. @throws if all are taken. */
  static async take(say: (line: string) => void): Promise<ClusterState> {
    await removeStale(say);
    for (let slot = 0; slot < SLOTS; slot += 1) {
      const state = ClusterState.#tryTake(slot);
      if (state !== undefined) return state;
    }
    throw new Error(`all ${SLOTS} slots for test clusters are taken: end some (npm run cluster down)`);
  }

  static #tryTake(slot: number): ClusterState | undefined {
    const lock = tryLock(lockFileOf(slot));
    if (lock === undefined) return undefined;
    if (existsSync(folderOf(slot)) || isElsewhere(addressesOf(slot))) {
      lock.release();
      return undefined;
    }
    for (const child of ["pki", "run", "log", "kube"]) {
      mkdirSync(join(folderOf(slot), child), { recursive: true, mode: 0o700 });
    }
    return new ClusterState(slot, lock);
  }

  file(...parts: string[]): string {
    return join(this.path, ...parts);
  }

  /** From now on only `removeKept` ends the cluster. */
  keep(kept: Kept): void {
    writeFileSync(this.file("kept.json"), `${JSON.stringify(kept, undefined, 2)}\n`, { mode: 0o600 });
    this.#lock.release();
  }

  /** Ends every process of the cluster and removes all that it has of the machine. */
  async remove(): Promise<void> {
    await removeRemains(this.addresses, this.path);
    this.#lock.release();
  }
}

/** The addresses are those of an interface that no folder of ours explains. */
function isElsewhere({ machine, link }: Addresses): boolean {
  return Object.entries(networkInterfaces()).some(
    ([name, list]) => name === link || list?.some(({ address }) => address === machine),
  );
}

function readKept(slot: number): Kept | undefined {
  const file = join(folderOf(slot), "kept.json");
  return existsSync(file) ? keptSchema.parse(JSON.parse(readFileSync(file, "utf8"))) : undefined;
}

function usedSlots(): number[] {
  mkdirSync(clustersFolder(), { recursive: true, mode: 0o700 });
  return readdirSync(clustersFolder())
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** Clusters that outlive their starters, by slot. */
export function keptClusters(): { slot: number; kept: Kept }[] {
  return usedSlots().flatMap((slot) => {
    const kept = readKept(slot);
    return kept === undefined ? [] : [{ slot, kept }];
  });
}

/** Whether this process removed it: false while another one has the slot. */
async function removeSlot(slot: number): Promise<boolean> {
  const lock = tryLock(lockFileOf(slot));
  if (lock === undefined) return false;
  try {
    await removeRemains(addressesOf(slot), folderOf(slot));
  } finally {
    lock.release();
  }
  return true;
}

/** Removes what runs that were killed left. */
export async function removeStale(say: (line: string) => void): Promise<void> {
  for (const slot of usedSlots()) {
    if (readKept(slot) !== undefined) continue;
    if (await removeSlot(slot)) say(`removed what a killed run left of test cluster ${slot}`);
  }
}

/** Removes one cluster that was kept, or whose starter is gone. @throws if a process uses it. */
export async function removeKept(slot: number): Promise<void> {
  if (!(await removeSlot(slot))) {
    throw new Error(`test cluster ${slot} is in use by process ${readFileSync(lockFileOf(slot), "utf8").trim()}`);
  }
}

/** Removes the slot's cluster unless it is kept: what the watcher does when the starter is gone. */
export async function removeUnlessKept(slot: number): Promise<void> {
  if (existsSync(folderOf(slot)) && readKept(slot) === undefined) {
    await removeRemains(addressesOf(slot), folderOf(slot));
  }
}
