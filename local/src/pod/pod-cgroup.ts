import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

const EMPTY_TIMEOUT_MS = 10_000;
const POLL_MS = 50;

/** Mount points of all cgroup v1 hierarchies, by a controller of each; or of cgroup v2, which has processes only here. */
function hierarchies(wanted: "cgroup" | "cgroup2" = "cgroup"): { path: string; controllers: string[] }[] {
  return readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .flatMap((line) => {
      // proc_pid_mountinfo(5): "… mount-point options [fields] - type source super-options"
      const [before = "", after = ""] = line.split(" - ");
      const [type, , options = ""] = after.split(" ");
      const path = before.split(" ")[4];
      return type === wanted && path !== undefined ? [{ path, controllers: options.split(",") }] : [];
    });
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

/** The group below every cgroup v1 controller that stands for the pod: its limit counts the atelet and all actors. */
export class PodCgroup {
  /** Relative to each controller's root. */
  readonly path: string;

  constructor(id: string) {
    this.path = `/substrate-${id}`;
  }

  #folders(): string[] {
    // runc makes its groups in cgroup v2, too, where that is mounted besides
    return [...hierarchies(), ...hierarchies("cgroup2")].map(({ path }) => join(path, this.path));
  }

  create(memoryLimitBytes: number): void {
    for (const { path, controllers } of hierarchies()) {
      const folder = join(path, this.path);
      mkdirSync(folder, { recursive: true });
      if (controllers.includes("cpuset")) {
        // a new cpuset is empty and takes no process
        for (const file of ["cpuset.cpus", "cpuset.mems"])
          writeFileSync(join(folder, file), readFileSync(join(path, file)));
      }
      if (controllers.includes("memory")) writeFileSync(join(folder, "memory.limit_in_bytes"), `${memoryLimitBytes}`);
    }
  }

  /** Moves the process; its later children begin in the group. */
  add(pid: number): void {
    for (const { path } of hierarchies()) writeFileSync(join(path, this.path, "cgroup.procs"), `${pid}`);
  }

  /** Processes in the group and all below it. */
  members(): number[] {
    return [
      ...new Set(
        this.#folders()
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
      const busy = this.#folders()
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
