import { readFile } from "node:fs/promises";

import { SubstrateError } from "@substrate/lib/errors.ts";

import { type Cgroups } from "./cgroups.ts";
import { CgroupsV1 } from "./v1.ts";

/** What an actor's limits need. */
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
  v2: boolean;
}

/** Reads the cgroup mounts out of /proc/self/mountinfo. The first mount of a controller counts, as for runsc. */
export function cgroupMounts(mountinfo: string): CgroupMounts {
  const v1 = new Map<string, string>();
  let v2 = false;
  for (const line of mountinfo.split("\n")) {
    const [left, right] = line.split(" - ");
    const mountPoint = left?.split(" ")[4];
    const [type, , options] = right?.split(" ") ?? [];
    if (mountPoint === undefined || options === undefined) continue;
    if (type === "cgroup2") v2 = true;
    if (type !== "cgroup") continue;
    for (const option of options.split(",")) {
      const controller = option.replace(/^name=/, "");
      if (controllers.has(controller) && !v1.has(controller)) v1.set(controller, mountPoint);
    }
  }
  return { v1, v2 };
}

/**
 * The machine's control groups.
 * @param parent the pod's group relative to each controller's root, e.g. "/substrate-1"; "/" for the root as seen here.
 * @throws SubstrateError INVALID if this machine's control groups can't hold actors yet.
 */
export async function detectCgroups(parent: string): Promise<Cgroups> {
  if (!parent.startsWith("/")) throw new SubstrateError("INVALID", `cgroup parent "${parent}" must begin with "/"`);
  const { v1, v2 } = cgroupMounts(await readFile("/proc/self/mountinfo", "utf8"));
  const missing = required.filter((controller) => !v1.has(controller));
  if (missing.length === 0) return new CgroupsV1(v1, parent);
  const why = v2
    ? `${missing.join(", ")} are on cgroup v2, which is not supported yet: boot with systemd.unified_cgroup_hierarchy=0`
    : `${missing.join(", ")} are not mounted: mount the cgroup v1 controllers below /sys/fs/cgroup`;
  throw new SubstrateError("INVALID", `no place for actors' limits: ${why}`);
}
