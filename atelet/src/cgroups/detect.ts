import { readFile } from "node:fs/promises";

import { SubstrateError } from "@substrate/lib/errors.ts";

import { type Cgroups } from "./cgroups.ts";
import { podGroup, type UnifiedMount } from "./pod-group.ts";
import { CgroupsV1 } from "./v1.ts";
import { CgroupsV2 } from "./v2.ts";

/** Where runsc looks for control groups; a cgroup2 elsewhere is the empty half of a hybrid hierarchy. */
const root = "/sys/fs/cgroup";

/** What an actor's limits need on v1. */
const required = ["memory", "cpu", "pids"];

/** Controllers in which runsc makes folders (runsc/cgroup); all are removed with an actor. */
const controllers = new Set([
  ...required,
  "blkio",
  "cpuacct",
  "cpuset",
  "devices",
  "freezer",
  "hugetlb",
  "net_cls",
  "net_prio",
  "perf_event",
  "rdma",
  "systemd",
]);

interface CgroupMounts {
  v1: Map<string, string>;
  /** The unified hierarchy, if that is what this machine uses. */
  unified: UnifiedMount | undefined;
}

/** Reads the cgroup mounts out of /proc/self/mountinfo. The first mount of a v1 controller counts, as for runsc. */
export function cgroupMounts(mountinfo: string): CgroupMounts {
  const v1 = new Map<string, string>();
  let unified: UnifiedMount | undefined;
  for (const line of mountinfo.split("\n")) {
    const [left, right] = line.split(" - ");
    const [, , , mountRoot, mountPoint] = left?.split(" ") ?? [];
    const [type, , options] = right?.split(" ") ?? [];
    if (mountRoot === undefined || mountPoint === undefined || options === undefined) continue;
    // the last one lies on top
    if (mountPoint === root) unified = type === "cgroup2" ? { mountPoint, root: mountRoot } : undefined;
    if (type !== "cgroup") continue;
    for (const option of options.split(",")) {
      const controller = option.replace(/^name=/, "");
      if (controllers.has(controller) && !v1.has(controller)) v1.set(controller, mountPoint);
    }
  }
  return { v1, unified };
}

/**
 * The machine's control groups.
 * @param parent the pod's group relative to each controller's root, e.g. "/substrate-1"; "/" for the root as seen here
 * on v1, for the group of this process on v2.
 * @throws SubstrateError INVALID if this machine's control groups can't hold actors.
 */
export async function detectCgroups(parent: string): Promise<Cgroups> {
  if (!parent.startsWith("/")) throw new SubstrateError("INVALID", `cgroup parent "${parent}" must begin with "/"`);
  const { v1, unified } = cgroupMounts(await readFile("/proc/self/mountinfo", "utf8"));
  if (unified !== undefined) {
    return new CgroupsV2(unified.mountPoint, podGroup(parent, unified, await readFile("/proc/self/cgroup", "utf8")));
  }
  const missing = required.filter((controller) => !v1.has(controller));
  if (missing.length === 0) return new CgroupsV1(v1, parent);
  throw new SubstrateError(
    "INVALID",
    `no place for actors' limits: ${missing.join(", ")} are not mounted: mount the cgroup v1 controllers below ${root}, ` +
      `or cgroup v2 at ${root} (in a pod the container runtime does, unless something else is mounted over it)`,
  );
}
