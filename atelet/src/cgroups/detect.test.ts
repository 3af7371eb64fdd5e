import { expect, it } from "vitest";

import { cgroupMounts } from "./detect.ts";

const line = (mountPoint: string, type: string, options: string) =>
  `35 30 0:30 / ${mountPoint} rw,relatime shared:9 - ${type} cgroup rw,${options}`;

it("finds each v1 controller's mount, shared ones and named hierarchies too", () => {
  const { v1, v2 } = cgroupMounts(
    [
      line("/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct"),
      line("/sys/fs/cgroup/memory", "cgroup", "memory"),
      line("/sys/fs/cgroup/systemd", "cgroup", "name=systemd"),
      line("/sys/fs/cgroup/unified", "cgroup2", "nsdelegate"),
      line("/elsewhere/memory", "cgroup", "memory"),
      "36 30 8:1 / / rw - ext4 /dev/vda rw",
    ].join("\n"),
  );
  expect(v2).toBe(true);
  expect(Object.fromEntries(v1)).toEqual({
    cpu: "/sys/fs/cgroup/cpu,cpuacct",
    cpuacct: "/sys/fs/cgroup/cpu,cpuacct",
    memory: "/sys/fs/cgroup/memory",
    systemd: "/sys/fs/cgroup/systemd",
  });
});
