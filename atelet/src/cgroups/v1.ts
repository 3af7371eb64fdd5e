import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { SubstrateError } from "@substrate/lib/errors.ts";

import { type CgroupMemory, type Cgroups, type LimitsHit, type Unwritten } from "./cgroups.ts";
import { codeOf, counter, groupsIn, nodeMemoryBytes, processesIn, readControl, removeGroup } from "./files.ts";

/** Controllers that limit an actor; the snapshots' group exists in these. */
const moved = ["memory", "cpu"] as const;

/** Period of the CPU quota in microseconds: the kernel's default. */
const cpuPeriodUs = 100_000;

const moveTimeoutMs = 5_000;
const removeTimeoutMs = 10_000;

/** cgroup v1, one hierarchy per controller: <mount of controller>/<parent>/{actors/<id>,snapshots}. */
export class CgroupsV1 implements Cgroups {
  readonly #mounts: ReadonlyMap<string, string>;
  readonly #parent: string;

  /**
   * @param mounts controller → folder where its hierarchy is mounted; memory, cpu and pids among them.
   * @param parent the pod's group, relative to each mount, e.g. "/substrate-1"; "/" in a pod that sees its own as root.
   */
  constructor(mounts: ReadonlyMap<string, string>, parent: string) {
    this.#mounts = mounts;
    this.#parent = parent === "/" ? "" : parent;
  }

  path(id: string): string {
    return `${this.#parent}/actors/${id}`;
  }

  async create(id: string): Promise<string> {
    await mkdir(this.#folder("memory", `${this.#parent}/actors`), { recursive: true });
    // runsc sets limits only on folders that it makes itself: one that is left over would stay without
    await this.#removeLeaf(id, "was left by an earlier sandbox");
    return this.path(id);
  }

  async moveToSnapshots(id: string, { lent }: { lent: boolean }): Promise<{ direct: boolean }> {
    const snapshots = this.#snapshots;
    for (const controller of moved) await mkdir(this.#folder(controller, snapshots), { recursive: true });
    await Promise.all(moved.map((controller) => this.#move(controller, this.path(id), snapshots)));
    return { direct: !lent };
  }

  async moveBack(id: string): Promise<void> {
    // which of the snapshots' processes are this actor's is told by a controller in which nothing is ever moved
    const own = await processesIn(this.#folder("pids", this.path(id)));
    await Promise.all(
      moved.map(async (controller) => {
        for (const pid of own) await this.#enter(controller, this.path(id), pid);
      }),
    );
  }

  async limitCpu(id: string, cpuMillis: number): Promise<void> {
    const folder = this.#folder("cpu", this.path(id));
    await writeFile(join(folder, "cpu.cfs_period_us"), String(cpuPeriodUs));
    const quotaUs = Math.max(1000, Math.floor((cpuMillis * cpuPeriodUs) / 1000));
    await writeFile(join(folder, "cpu.cfs_quota_us"), String(quotaUs));
  }

  async limitsHit(id: string): Promise<LimitsHit> {
    const group = this.path(id);
    const oomControl = await readControl(join(this.#folder("memory", group), "memory.oom_control"));
    const refused = await readControl(join(this.#folder("pids", group), "pids.events"));
    const limit = await readControl(join(this.#folder("pids", group), "pids.max"));
    return {
      memory: counter(oomControl, "oom_kill") > 0,
      processes: counter(refused, "max") > 0 ? Number(limit) : undefined,
      mostProcesses: Number((await readControl(join(this.#folder("pids", group), "pids.peak"))) ?? 0),
    };
  }

  actor(id: string): Promise<CgroupMemory> {
    return this.#memory(this.path(id));
  }

  async cpuNs(id: string): Promise<bigint> {
    const text = await readControl(join(this.#folder("cpuacct", this.path(id)), "cpuacct.usage"));
    return BigInt((text ?? "0").trim());
  }

  pod(): Promise<CgroupMemory> {
    return this.#memory(this.#parent);
  }

  async snapshots(): Promise<Unwritten> {
    const stat = await readControl(join(this.#folder("memory", this.#snapshots), "memory.stat"));
    return { dirtyBytes: counter(stat, "total_dirty"), writebackBytes: counter(stat, "total_writeback") };
  }

  async remove(id: string): Promise<void> {
    await this.#removeLeaf(id, "is to be removed");
  }

  /** Of all controllers: one whose removal was cut off is left in some of them only. */
  async list(): Promise<string[]> {
    const folders = [...this.#mounts.keys()].map((controller) => this.#folder(controller, `${this.#parent}/actors`));
    return [...new Set((await Promise.all(folders.map(groupsIn))).flat())];
  }

  async destroy(): Promise<void> {
    for (const id of await this.list()) await this.remove(id);
    for (const name of ["actors", "snapshots"]) {
      await Promise.all(
        [...this.#mounts.keys()].map((controller) =>
          removeGroup(this.#folder(controller, `${this.#parent}/${name}`), performance.now() + removeTimeoutMs),
        ),
      );
    }
  }

  get #snapshots(): string {
    return `${this.#parent}/snapshots`;
  }

  #folder(controller: string, group: string): string {
    const mount = this.#mounts.get(controller);
    if (mount === undefined) throw new SubstrateError("INTERNAL", `cgroup controller ${controller} is not mounted`);
    return join(mount, group);
  }

  /** Moves until nothing is left: a process may fork between the read of the list and its own move. */
  async #move(controller: string, from: string, to: string): Promise<void> {
    const deadlineMs = performance.now() + moveTimeoutMs;
    for (;;) {
      const pids = await processesIn(this.#folder(controller, from));
      if (pids.length === 0) return;
      if (performance.now() > deadlineMs) {
        throw new SubstrateError("INTERNAL", `cgroup ${from} (${controller}) still has processes after moving them`);
      }
      for (const pid of pids) await this.#enter(controller, to, pid);
    }
  }

  /** A process that ended meanwhile is no error. */
  async #enter(controller: string, group: string, pid: number): Promise<void> {
    try {
      await writeFile(join(this.#folder(controller, group), "cgroup.procs"), String(pid));
    } catch (error) {
      if (codeOf(error) === "ESRCH") return;
      const why = error instanceof Error ? error.message : String(error);
      throw new SubstrateError("INTERNAL", `cannot move process ${pid} into cgroup ${group} (${controller}): ${why}`, {
        cause: error,
      });
    }
  }

  async #removeLeaf(id: string, why: string): Promise<void> {
    const deadline = performance.now() + removeTimeoutMs;
    await Promise.all(
      [...this.#mounts.keys()].map(async (controller) => {
        const folder = this.#folder(controller, this.path(id));
        if (await removeGroup(folder, deadline)) return;
        const pids = await processesIn(folder);
        throw new SubstrateError(
          "INTERNAL",
          `cgroup ${folder} ${why} but still has processes (${pids.join(", ")}): delete sandbox ${id} first`,
        );
      }),
    );
  }

  async #memory(group: string): Promise<CgroupMemory> {
    const folder = this.#folder("memory", group);
    const [usage, statText] = await Promise.all([
      readFile(join(folder, "memory.usage_in_bytes"), "utf8"),
      readFile(join(folder, "memory.stat"), "utf8"),
    ]);
    const stat = new Map(
      statText.split("\n").map((line) => {
        const [key, value] = line.split(" ");
        return [key ?? "", Number(value)];
      }),
    );
    // total_*: children that are gone stay in their parents' totals only (R29)
    const total = (key: string) => stat.get(`total_${key}`) ?? 0;
    const dirtyBytes = total("dirty");
    const writebackBytes = total("writeback");
    const shmemBytes = total("shmem");
    const limit = stat.get("hierarchical_memory_limit") ?? Number.POSITIVE_INFINITY;
    const nodeBytes = await nodeMemoryBytes();
    return {
      usageBytes: Number(usage),
      limitBytes: Math.min(limit, nodeBytes),
      limited: limit < nodeBytes,
      shmemBytes,
      cleanCacheBytes: Math.max(0, total("cache") - shmemBytes - dirtyBytes - writebackBytes),
      dirtyBytes,
      writebackBytes,
    };
  }
}
