import { availableMemoryBytes } from "./files.ts";

export interface CgroupMemory {
  /** R29: everything below it included. */
  usageBytes: number;
  limitBytes: number;
  /** Whether there is a limit at all; else `limitBytes` is the node's memory. */
  limited: boolean;
  shmemBytes: number;
  /** Page cache that is neither dirty nor under write-back nor shmem: free at any moment (R4). */
  cleanCacheBytes: number;
  dirtyBytes: number;
  writebackBytes: number;
}

/** What is written and not on the disk yet. */
export type Unwritten = Pick<CgroupMemory, "dirtyBytes" | "writebackBytes">;

/**
 * What can be used at once by the pod's numbers: clean page cache counts as free (R4). Without a limit the rest of the
 * machine counts, too.
 */
export async function freeBytes(pod: CgroupMemory): Promise<number> {
  const free = Math.max(0, pod.limitBytes - pod.usageBytes + pod.cleanCacheBytes);
  return pod.limited ? free : Math.min(free, await availableMemoryBytes());
}

/**
 * R5: the most that is lent to snapshots at once; undefined: as much as is unbooked. Nothing kills a pod without a limit
 * for what it has dirty, but the node's disk would be full of it.
 */
export function lendCapBytes(pod: Pick<CgroupMemory, "limited" | "limitBytes">, percent: number): number | undefined {
  return pod.limited ? undefined : Math.floor((pod.limitBytes * percent) / 100);
}

export interface LimitsHit {
  /** A process was killed at the memory limit. */
  memory: boolean;
  /** The limit of processes and threads at which a further one was refused. */
  processes: number | undefined;
  /** The most processes and threads that it had at once; 0: this kernel doesn't count that. */
  mostProcesses: number;
}

/** Control groups of the pod and its actors, on v1 or v2 behind one interface. */
export interface Cgroups {
  /**
   * Makes room for <pod>/actors/<id> and returns it as cgroupPath: its parent exists afterwards, itself it does not (an
   * empty leftover is removed), because runtimes set the limits of SandboxSpec only on groups that they make themselves.
   */
  create(id: string): Promise<string>;
  path(id: string): string;
  /**
   * Moves every process of the actor into a group beside it, so that the image's page cache is not the actor's (R17).
   * @param options.lent whether memory was lent for the whole image. If not, what it writes is bounded there, or, where
   * the kernel can only kill at a bound (v1), has to go around the page cache (R6).
   * @returns whether it has to.
   */
  moveToSnapshots(id: string, options: { lent: boolean }): Promise<{ direct: boolean }>;
  moveBack(id: string): Promise<void>;
  /**
   * Sets the actor's CPU quota. A restored sandbox starts without one, so that loading is not throttled; call this once
   * it answers, and again at adoption. Idempotent.
   */
  limitCpu(id: string, cpuMillis: number): Promise<void>;
  /** Which limits the kernel has enforced on the actor since its group was made. */
  limitsHit(id: string): Promise<LimitsHit>;
  actor(id: string): Promise<CgroupMemory>;
  /** CPU time that the actor's sandbox has used since it began, in nanoseconds. */
  cpuNs(id: string): Promise<bigint>;
  /** The pod: its own limit (what the kernel enforces, or the node's memory if there is none) and use. */
  pod(): Promise<CgroupMemory>;
  /** Of the groups that actors are moved to: the truth about what snapshots have in memory that is not on the disk (R17). */
  snapshots(): Promise<Unwritten>;
  /** For a deleted sandbox: waits, bounded, until the group is empty, then removes it. v2 kills what stays in it; v1 can't. */
  remove(id: string): Promise<void>;
  /** Ids that have a group. */
  list(): Promise<string[]>;
  /** Last shutdown: removes everything below the pod's group that was made here. No actor may be left. */
  destroy(): Promise<void>;
}
