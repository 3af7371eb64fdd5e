import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import { SubstrateError } from "@substrate/lib/errors.ts";

import { type CgroupMemory, type Cgroups, type LimitsHit, type Unwritten } from "./cgroups.ts";
import { codeOf, counter, groupsIn, nodeMemoryBytes, processesIn, readControl, removeGroup } from "./files.ts";

/** Period of the CPU quota in microseconds: the kernel's default. */
const cpuPeriodUs = 100_000;

const moveTimeoutMs = 5_000;
const removeTimeoutMs = 10_000;
/** Processes of a deleted sandbox end by themselves within milliseconds; what is left after this is killed. */
const killAfterMs = 2_000;

/**
 * R6: of snapshots for which nothing could be lent, what they may have in memory together before who writes is slowed
 * down to the disk's speed. Never a reason to kill.
 */
const unlentBytes = 64 * 2 ** 20;

/**
 * cgroup v2: <mount>/<pod>/{supervisor,actors/<id>,snapshots/<id>,unlent/<id>}. Limits of actors/<id> are set by the runtime, which
 * also gives each level its controllers. Memory is charged to `snapshots` and `unlent` as a whole: they give their
 * children none, so that these can go while the page cache of images stays.
 */
export class CgroupsV2 implements Cgroups {
  readonly #mount: string;
  readonly #pod: string;

  /**
   * @param mount where the hierarchy is mounted: /sys/fs/cgroup, where the runtime looks for it.
   * @param pod the pod's group relative to that; "" for its root, in a cgroup namespace of the pod's own.
   */
  constructor(mount: string, pod: string) {
    this.#mount = mount;
    this.#pod = pod;
  }

  path(id: string): string {
    return `${this.#pod}/actors/${id}`;
  }

  async create(id: string): Promise<string> {
    await mkdir(this.#folder(`${this.#pod}/actors`), { recursive: true });
    // runsc sets limits only on folders that it makes itself: one that is left over would stay without
    await this.#removeAll(id, "was left by an earlier sandbox");
    return this.path(id);
  }

  async moveToSnapshots(id: string, { lent }: { lent: boolean }): Promise<{ direct: boolean }> {
    const to = lent ? this.#lent(id) : this.#unlent(id);
    await mkdir(this.#folder(to), { recursive: true });
    if (!lent) await writeFile(join(this.#folder(dirname(to)), "memory.high"), String(unlentBytes));
    await this.#move(this.path(id), to);
    return { direct: false };
  }

  async moveBack(id: string): Promise<void> {
    for (const away of [this.#lent(id), this.#unlent(id)]) {
      await this.#move(away, this.path(id));
      await this.#remove(away, performance.now() + removeTimeoutMs);
    }
  }

  async limitCpu(id: string, cpuMillis: number): Promise<void> {
    const quotaUs = Math.max(1000, Math.floor((cpuMillis * cpuPeriodUs) / 1000));
    await writeFile(join(this.#folder(this.path(id)), "cpu.max"), `${quotaUs} ${cpuPeriodUs}`);
  }

  async limitsHit(id: string): Promise<LimitsHit> {
    const folder = this.#folder(this.path(id));
    const [memory, pids, limit, peak] = await Promise.all(
      ["memory.events", "pids.events", "pids.max", "pids.peak"].map((file) => readControl(join(folder, file))),
    );
    return {
      memory: counter(memory, "oom_kill") > 0,
      processes: counter(pids, "max") > 0 ? Number(limit) : undefined,
      // since Linux 6.6
      mostProcesses: Number(peak ?? 0),
    };
  }

  actor(id: string): Promise<CgroupMemory> {
    return this.#memory(this.path(id));
  }

  async cpuNs(id: string): Promise<bigint> {
    const stat = await readControl(join(this.#folder(this.path(id)), "cpu.stat"));
    return BigInt(counter(stat, "usage_usec")) * 1000n;
  }

  pod(): Promise<CgroupMemory> {
    return this.#memory(this.#pod);
  }

  async snapshots(): Promise<Unwritten> {
    const stats = await Promise.all(
      ["snapshots", "unlent"].map((name) => readControl(join(this.#folder(`${this.#pod}/${name}`), "memory.stat"))),
    );
    const total = (key: string): number => stats.reduce((sum, stat) => sum + counter(stat, key), 0);
    return { dirtyBytes: total("file_dirty"), writebackBytes: total("file_writeback") };
  }

  async remove(id: string): Promise<void> {
    await this.#removeAll(id, "is to be removed");
  }

  async list(): Promise<string[]> {
    const lists = await Promise.all(
      ["actors", "snapshots", "unlent"].map((name) => groupsIn(this.#folder(`${this.#pod}/${name}`))),
    );
    return [...new Set(lists.flat())];
  }

  async destroy(): Promise<void> {
    for (const id of await this.list()) await this.remove(id);
    for (const name of ["actors", "snapshots", "unlent"]) {
      await this.#remove(`${this.#pod}/${name}`, performance.now() + removeTimeoutMs);
    }
  }

  /** Where an actor's processes are while their memory is written to an image for which as much memory was lent. */
  #lent(id: string): string {
    return `${this.#pod}/snapshots/${id}`;
  }

  /** Where they are without a loan: the kernel slows down who writes more than the disk takes (R6). */
  #unlent(id: string): string {
    return `${this.#pod}/unlent/${id}`;
  }

  #folder(group: string): string {
    return join(this.#mount, group);
  }

  /** Moves until nothing is left: a process may fork between the read of the list and its own move. */
  async #move(from: string, to: string): Promise<void> {
    const deadlineMs = performance.now() + moveTimeoutMs;
    for (;;) {
      const pids = await processesIn(this.#folder(from));
      if (pids.length === 0) return;
      if (performance.now() > deadlineMs) {
        throw new SubstrateError(
          "INTERNAL",
          `cgroup ${from} still has processes after moving them: ${pids.join(", ")}`,
        );
      }
      for (const pid of pids) await this.#enter(to, pid);
    }
  }

  /** A process that ended meanwhile is no error. */
  async #enter(group: string, pid: number): Promise<void> {
    // the kernel shows 0 for processes outside of this pid namespace, and takes 0 for the writer
    if (pid === 0) throw new SubstrateError("INTERNAL", `cgroup for ${group} has a process of another pid namespace`);
    try {
      await writeFile(join(this.#folder(group), "cgroup.procs"), String(pid));
    } catch (error) {
      if (codeOf(error) === "ESRCH") return;
      const why = error instanceof Error ? error.message : String(error);
      throw new SubstrateError("INTERNAL", `cannot move process ${pid} into cgroup ${group}: ${why}`, { cause: error });
    }
  }

  async #removeAll(id: string, why: string): Promise<void> {
    const deadlineMs = performance.now() + removeTimeoutMs;
    await Promise.all(
      [this.path(id), this.#lent(id), this.#unlent(id)].map(async (group) => {
        if (await this.#remove(group, deadlineMs)) return;
        const pids = await processesIn(this.#folder(group));
        throw new SubstrateError(
          "INTERNAL",
          `cgroup ${this.#folder(group)} ${why} but still has processes (${pids.join(", ")}), which SIGKILL does not end: ` +
            `they wait for a disk or a mount that does not answer`,
        );
      }),
    );
  }

  /** @returns false if it was still busy at the deadline. */
  async #remove(group: string, deadlineMs: number): Promise<boolean> {
    const folder = this.#folder(group);
    if (await removeGroup(folder, performance.now() + killAfterMs)) return true;
    try {
      await writeFile(join(folder, "cgroup.kill"), "1");
    } catch (error) {
      // before Linux 5.14 there is none, and the group may be gone by now
      if (codeOf(error) !== "ENOENT" && codeOf(error) !== "ENODEV") throw error;
    }
    return removeGroup(folder, deadlineMs);
  }

  async #memory(group: string): Promise<CgroupMemory> {
    const folder = this.#folder(group);
    const [usage, stat, limit] = await Promise.all([
      readControl(join(folder, "memory.current")),
      readControl(join(folder, "memory.stat")),
      this.#limit(group),
    ]);
    if (usage === undefined || stat === undefined) {
      throw new SubstrateError(
        "INTERNAL",
        `cgroup ${folder} has no memory.current: it is gone, its parent gives it no memory controller, or it is the ` +
          "machine's root group (the atelet belongs in a container, or name a group by --cgroup-parent)",
      );
    }
    const shmemBytes = counter(stat, "shmem");
    const dirtyBytes = counter(stat, "file_dirty");
    const writebackBytes = counter(stat, "file_writeback");
    const nodeBytes = await nodeMemoryBytes();
    return {
      usageBytes: Number(usage),
      limitBytes: Math.min(limit, nodeBytes),
      limited: limit < nodeBytes,
      shmemBytes,
      cleanCacheBytes: Math.max(0, counter(stat, "file") - shmemBytes - dirtyBytes - writebackBytes),
      dirtyBytes,
      writebackBytes,
    };
  }

  /** The lowest limit of the group and of all above it that can be seen from here; Infinity if there is none. */
  async #limit(group: string): Promise<number> {
    const text = (await readControl(join(this.#folder(group), "memory.max")))?.trim();
    const own = text === undefined || text === "max" ? Number.POSITIVE_INFINITY : Number(text);
    return group === "" || group === "/" ? own : Math.min(own, await this.#limit(dirname(group)));
  }
}
