export interface CgroupMemory {
  /** R29: everything below it included. */
  usageBytes: number;
  limitBytes: number;
  shmemBytes: number;
  /** Page cache that is neither dirty nor under write-back nor shmem: free at any moment (R4). */
  cleanCacheBytes: number;
  dirtyBytes: number;
  writebackBytes: number;
}

/** Control groups of the pod and its actors, on v1 or v2 behind one interface. */
export interface Cgroups {
  /** Makes <pod>/actors/<id> in every controller; limits are set by the runtime from SandboxSpec. Returns cgroupPath. */
  create(id: string): Promise<string>;
  path(id: string): string;
  /** Moves every process of the actor into <pod>/snapshots, so that the image's page cache is not the actor's (R17). */
  moveToSnapshots(id: string): Promise<void>;
  moveBack(id: string): Promise<void>;
  actor(id: string): Promise<CgroupMemory>;
  /** The pod: its own limit (what the kernel enforces, or the node's memory if there is none) and use. */
  pod(): Promise<CgroupMemory>;
  /** Kills nothing; waits, bounded, until the group is empty, then removes it. */
  remove(id: string): Promise<void>;
  /** Ids that have a group. */
  list(): Promise<string[]>;
}
