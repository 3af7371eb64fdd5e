import { expect, it } from "vitest";
import { cgroupHierarchies } from "./pod-cgroup.ts";

const line = (mountPoint: string, type: string, options: string): string =>
  `35 30 0:30 / ${mountPoint} rw,relatime shared:9 - ${type} cgroup rw,${options}`;
const v1 = [
  line("/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct"),
  line("/sys/fs/cgroup/memory", "cgroup", "memory"),
  line("/sys/fs/cgroup/unified", "cgroup2", "nsdelegate"),
];

it("knows which hierarchies limit something: v1's, and cgroup v2 where it is the only one", () => {
  expect(cgroupHierarchies(v1.join("\n"))).toEqual([
    { path: "/sys/fs/cgroup/cpu,cpuacct", controllers: ["rw", "cpu", "cpuacct"] },
    { path: "/sys/fs/cgroup/memory", controllers: ["rw", "memory"] },
    { path: "/sys/fs/cgroup/unified", controllers: [] },
  ]);
  expect(cgroupHierarchies(line("/sys/fs/cgroup", "cgroup2", "nsdelegate"))).toEqual([
    { path: "/sys/fs/cgroup", controllers: ["cgroup2"] },
  ]);
});
