import { SubstrateError } from "@substrate/lib/errors.ts";

/** The leaf of the pod's group in which supervisor and atelet are: a group with controllers for its children has none. */
export const supervisorLeaf = "supervisor";

export interface UnifiedMount {
  mountPoint: string;
  /** The group that is mounted there, as this process's cgroup namespace names it. */
  root: string;
}

/**
 * The pod's own group relative to the mount, "" for the mount's root. Of the supervisor and of the atelet it is the
 * same.
 * @param parent --cgroup-parent; "/" for the group in which this process was started.
 * @param selfCgroup /proc/self/cgroup.
 */
export function podGroup(parent: string, mount: UnifiedMount, selfCgroup: string): string {
  if (parent !== "/") return parent.replace(/\/+$/, "");
  const own = /^0::(\/.*)$/m.exec(selfCgroup)?.[1];
  const root = mount.root === "/" ? "" : mount.root;
  if (own === undefined || !`${own}/`.startsWith(`${root}/`) || own.startsWith("/..")) {
    throw new SubstrateError(
      "INVALID",
      `this process's cgroup ${own ?? "(none)"} is not below ${mount.root}, which is mounted at ${mount.mountPoint}: ` +
        "mount the cgroup namespace's own root there, or name a group by --cgroup-parent",
    );
  }
  const group = own.slice(root.length).replace(/\/+$/, "");
  return group.endsWith(`/${supervisorLeaf}`) ? group.slice(0, -supervisorLeaf.length - 1) : group;
}
