import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

const EMPTY_TIMEOUT_MS = 10_000;
const POLL_MS = 50;

const ROOT = "/sys/fs/cgroup";

interface Hierarchy {
  path: string;
  /** "cgroup2": the unified hierarchy, which has all; none: the half of a hybrid one that limits nothing. */
  controllers: string[];
}

/** Mount points of all cgroup hierarchies, by a controller of each. */
export function cgroupHierarchies(mountinfo: string): Hierarchy[] {
  return mountinfo.split("\n").flatMap((line) => {
    // proc_pid_mountinfo(5): "… mount-point options [fields] - type source super-options"
    const [before = "", after = ""] = line.split(" - ");
    const [type, , options = ""] = after.split(" ");
    const path = before.split(" ")[4];
    if (path === undefined) return [];
    if (type === "cgroup2") return [{ path, controllers: path === ROOT ? ["cgroup2"] : [] }];
    return type === "cgroup" ? [{ path, controllers: options.split(",") }] : [];
  });
}

function mountedHierarchies(): Hierarchy[] {
  return cgroupHierarchies(readFileSync("/proc/self/mountinfo", "utf8"));
}

/** Those that limit something: in these the pod's processes are. */
function limiting(): Hierarchy[] {
  return mountedHierarchies().filter(({ controllers }) => controllers.length > 0);
}

/** Gives the groups below the root all controllers that this machine has. */
function giveControllers(root: string): void {
  const controllers = readFileSync(join(root, "cgroup.controllers"), "utf8").trim().split(/\s+/);
  try {
    writeFileSync(join(root, "cgroup.subtree_control"), controllers.map((name) => `+${name}`).join(" "));
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EBUSY")) throw error;
    throw new Error(
      `${root} has processes of its own, so groups below it get no limits: this is a container without an init that ` +
        "keeps them in a group; move them into one (mkdir a group there, write their ids into its cgroup.procs)",
      { cause: error },
    );
  }
}

/** MemAvailable of /proc/meminfo, in bytes. */
export function availableMemoryBytes(): number {
  const kib = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync("/proc/meminfo", "utf8"))?.[1];
  if (kib === undefined) throw new Error("/proc/meminfo has no MemAvailable");
  return Number(kib) * 1024;
}

function ignoreMissing(error: unknown): void {
  if (!(error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENODEV"))) throw error;
}

/**
 * The group that stands for the pod, on v1 below every controller: its limit counts the atelet and all actors. On v2 the
 * supervisor makes the groups in it.
 */
export class PodCgroup {
  /** Relative to each hierarchy's root. */
  readonly path: string;

  constructor(id: string) {
    this.path = `/substrate-${id}`;
  }

  /** The group's folders that may be there. */
  folders(): string[] {
    // runc makes its groups in cgroup v2, too, where that is mounted besides v1
    return mountedHierarchies().map(({ path }) => join(path, this.path));
  }

  create(memoryLimitBytes: number): void {
    for (const { path, controllers } of limiting()) {
      const folder = join(path, this.path);
      if (controllers.includes("cgroup2")) giveControllers(path);
      mkdirSync(folder, { recursive: true });
      if (controllers.includes("cpuset")) {
        // a new cpuset is empty and takes no process
        for (const file of ["cpuset.cpus", "cpuset.mems"])
          writeFileSync(join(folder, file), readFileSync(join(path, file)));
      }
      if (controllers.includes("memory")) writeFileSync(join(folder, "memory.limit_in_bytes"), `${memoryLimitBytes}`);
      if (controllers.includes("cgroup2")) writeFileSync(join(folder, "memory.max"), `${memoryLimitBytes}`);
    }
  }

  /** Moves the process; its later children begin in the group. */
  add(pid: number): void {
    for (const { path } of limiting()) writeFileSync(join(path, this.path, "cgroup.procs"), `${pid}`);
  }

  /** Processes in the group and all below it. */
  members(): number[] {
    return [
      ...new Set(
        this.folders()
          .flatMap((folder) => below(folder))
          .flatMap(processesOf),
      ),
    ];
  }

  /** Kills every member, waits until none is left and removes the groups. @throws after 10 s. */
  async remove(): Promise<void> {
    const end = performance.now() + EMPTY_TIMEOUT_MS;
    for (;;) {
      for (const pid of this.members()) {
        try {
          process.kill(pid, "SIGKILL");
        } catch (error) {
          if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
        }
      }
      const busy = this.folders()
        .flatMap((folder) => below(folder))
        .filter((folder) => !removed(folder));
      if (busy.length === 0) return;
      if (performance.now() > end) throw new Error(`these cgroups cannot be removed: ${busy.join(", ")}`);
      await delay(POLL_MS);
    }
  }
}

/** The folder and all below it, deepest first; empty if it is not there. */
function below(folder: string): string[] {
  if (!existsSync(folder)) return [];
  try {
    const children = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    return [...children.flatMap((child) => below(join(folder, child.name))), folder];
  } catch (error) {
    ignoreMissing(error);
    return [];
  }
}

function processesOf(folder: string): number[] {
  try {
    return readFileSync(join(folder, "cgroup.procs"), "utf8").split("\n").filter(Boolean).map(Number);
  } catch (error) {
    ignoreMissing(error);
    return [];
  }
}

function removed(folder: string): boolean {
  try {
    rmdirSync(folder);
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return true;
    if (error instanceof Error && "code" in error && error.code === "EBUSY") return false;
    throw error;
  }
}
