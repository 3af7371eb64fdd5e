import { expect, it } from "vitest";

import { cgroupMounts } from "./detect.ts";
import { podGroup } from "./pod-group.ts";

const line = (mountPoint: string, type: string, options: string, root = "/") =>
  `35 30 0:30 ${root} ${mountPoint} rw,relatime shared:9 - ${type} cgroup rw,${options}`;

it("finds each v1 controller's mount, shared ones and named hierarchies too", () => {
  const { v1, unified } = cgroupMounts(
    [
      line("/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct"),
      line("/sys/fs/cgroup/memory", "cgroup", "memory"),
      line("/sys/fs/cgroup/systemd", "cgroup", "name=systemd"),
      line("/sys/fs/cgroup/unified", "cgroup2", "nsdelegate"),
      line("/elsewhere/memory", "cgroup", "memory"),
      "36 30 8:1 / / rw - ext4 /dev/vda rw",
    ].join("\n"),
  );
  expect(unified).toBeUndefined();
  expect(Object.fromEntries(v1)).toEqual({
    cpu: "/sys/fs/cgroup/cpu,cpuacct",
    cpuacct: "/sys/fs/cgroup/cpu,cpuacct",
    memory: "/sys/fs/cgroup/memory",
    systemd: "/sys/fs/cgroup/systemd",
  });
});

it("takes cgroup2 where runtimes look for it, unless something lies over it", () => {
  const unified = line("/sys/fs/cgroup", "cgroup2", "nsdelegate,memory_recursiveprot");
  expect(cgroupMounts(unified).unified).toEqual({ mountPoint: "/sys/fs/cgroup", root: "/" });
  const tmpfs = "36 30 0:31 / /sys/fs/cgroup rw - tmpfs tmpfs rw";
  expect(cgroupMounts(`${tmpfs}\n${unified}`).unified).toBeDefined();
  expect(cgroupMounts(`${unified}\n${tmpfs}`).unified).toBeUndefined();
});

it("finds the pod's group in a cgroup namespace of its own and in the machine's, before and after it is in the leaf", () => {
  const mount = { mountPoint: "/sys/fs/cgroup", root: "/" };
  expect(podGroup("/", mount, "0::/\n")).toBe("");
  expect(podGroup("/", mount, "0::/supervisor\n")).toBe("");
  const container = "/kubepods.slice/kubepods-pod7.slice/cri-containerd-9.scope";
  expect(podGroup("/", mount, `0::${container}\n`)).toBe(container);
  expect(podGroup("/", mount, `0::${container}/supervisor\n`)).toBe(container);
  // the container's group alone is mounted, by the machine's names
  expect(podGroup("/", { ...mount, root: container }, `0::${container}/supervisor\n`)).toBe("");
  expect(podGroup("/substrate-1", mount, "0::/user.slice\n")).toBe("/substrate-1");
});

it("refuses a mount in which its own group cannot be seen", () => {
  const mount = { mountPoint: "/sys/fs/cgroup", root: "/elsewhere" };
  expect(() => podGroup("/", mount, "0::/kubepods/x\n")).toThrow("is not below /elsewhere");
  expect(() => podGroup("/", { ...mount, root: "/" }, "0::/../x\n")).toThrow("is not below");
});
