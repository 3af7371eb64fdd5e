import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { SubstrateError } from "@substrate/lib/errors.ts";

import { cgroupMounts } from "./detect.ts";
import { codeOf, processIds } from "./files.ts";
import { podGroup, supervisorLeaf } from "./pod-group.ts";

/** `kubectl exec` may put a process into the pod's group between two looks. */
const attempts = 100;

/** What runsc must be able to set on an actor's group (runsc/cgroup/cgroup_v2.go); it refuses to start without one. */
const required = ["cpu", "cpuset", "io", "memory", "pids"];

/**
 * Makes the pod's group one that can have actors: on cgroup v2 only a group without processes of its own may give
 * controllers to children, so everything in it moves into a leaf, where all that is started later begins. Does nothing
 * on v1. Before anything else is started.
 * @throws SubstrateError INVALID naming what is missing.
 */
export function enterSupervisorLeaf(parent: string): void {
  const { unified } = cgroupMounts(readFileSync("/proc/self/mountinfo", "utf8"));
  if (unified === undefined) return;
  const group = join(unified.mountPoint, podGroup(parent, unified, readFileSync("/proc/self/cgroup", "utf8")));
  if (!existsSync(join(group, "cgroup.type"))) {
    throw new SubstrateError(
      "INVALID",
      `cgroup ${group} is the machine's root, or is not there: start the atelet in a container, or make a group for it ` +
        "and name that by --cgroup-parent",
    );
  }
  const available = readFileSync(join(group, "cgroup.controllers"), "utf8").trim().split(/\s+/);
  const missing = required.filter((name) => !available.includes(name));
  if (missing.length > 0) {
    throw new SubstrateError(
      "INVALID",
      `cgroup ${group} has no controllers ${missing.join(", ")}: the container runtime or systemd must delegate them ` +
        `(it has ${available.join(", ") || "none"})`,
    );
  }
  mkdirSync(join(group, supervisorLeaf), { recursive: true });
  giveControllers(group, available);
  keepOthersAtOom(group);
}

function giveControllers(group: string, controllers: readonly string[]): void {
  const wanted = controllers.map((name) => `+${name}`).join(" ");
  for (let attempt = 1; ; attempt += 1) {
    const left = moveAll(group, join(group, supervisorLeaf));
    try {
      writeFileSync(join(group, "cgroup.subtree_control"), wanted);
      return;
    } catch (error) {
      if (codeOf(error) === "EBUSY" && attempt < attempts) continue;
      const why = error instanceof Error ? error.message : String(error);
      throw new SubstrateError(
        "INVALID",
        `cgroup ${group} cannot give controllers to actors' groups: ${why}; processes in it: ${left.join(", ") || "none"}`,
        { cause: error },
      );
    }
  }
}

/** @returns what was in the group. */
function moveAll(from: string, to: string): number[] {
  const pids = processIds(readFileSync(join(from, "cgroup.procs"), "utf8"));
  for (const pid of pids) {
    if (pid === 0) {
      throw new SubstrateError(
        "INVALID",
        `cgroup ${from} has processes that this pod does not see: it must be the pod's alone`,
      );
    }
    try {
      writeFileSync(join(to, "cgroup.procs"), String(pid));
    } catch (error) {
      // it has ended
      if (codeOf(error) !== "ESRCH") throw error;
    }
  }
  return pids;
}

/**
 * The kubelet asks that an out-of-memory at the container's own limit kill all of it (memory.oom.group). The container
 * being all actors of the node, one of them is enough, as on v1.
 */
function keepOthersAtOom(group: string): void {
  try {
    writeFileSync(join(group, "memory.oom.group"), "0");
  } catch (error) {
    // before Linux 4.19 there is none
    if (codeOf(error) !== "ENOENT") throw error;
  }
}
