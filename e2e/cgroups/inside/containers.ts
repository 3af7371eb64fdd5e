import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

import { insidePaths } from "./place.ts";
import { podLimitBytes } from "./pod.ts";

const run = promisify(execFile);

export interface ContainerKind {
  /** A cgroup namespace of its own, as container runtimes give on cgroup v2. */
  ownCgroups: boolean;
  privileged: boolean;
}

/** linux/capability.h. */
const capabilities = [
  ...["CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"],
  ...["NET_BIND_SERVICE", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_MODULE", "SYS_CHROOT", "SYS_PTRACE", "SYS_ADMIN"],
  ...["SYS_RESOURCE", "MKNOD", "SETFCAP"],
].map((name) => `CAP_${name}`);

/** A container as a kubelet's: limits, memory.oom.group, /sys/fs/cgroup writable only if it is privileged. */
export async function startContainer(id: string, kind: ContainerKind, mode: string): Promise<ChildProcess> {
  const bundle = join(insidePaths.shared, id);
  await mkdir(bundle, { recursive: true });
  await writeFile(join(bundle, "config.json"), JSON.stringify(config(id, kind, mode)));
  return spawn(insidePaths.runc, ["run", "--bundle", bundle, id], { stdio: ["ignore", "inherit", "inherit"] });
}

export async function execInContainer(id: string, args: readonly string[]): Promise<string> {
  const { stdout } = await run(insidePaths.runc, ["exec", id, ...args]);
  return stdout;
}

function config(id: string, { ownCgroups, privileged }: ContainerKind, mode: string): unknown {
  const all = privileged ? capabilities : [];
  const readOnly = privileged ? [] : ["ro"];
  return {
    ociVersion: "1.0.2",
    process: {
      user: { uid: 0, gid: 0 },
      args: [insidePaths.node, insidePaths.script, mode],
      env: ["PATH=/bin:/sbin", "HOME=/"],
      cwd: "/",
      capabilities: { bounding: all, effective: all, permitted: all },
    },
    root: { path: "/container" },
    mounts: [
      { destination: "/proc", type: "proc", source: "proc" },
      { destination: "/dev", type: "bind", source: "/dev", options: ["rbind", "rw"] },
      { destination: "/sys", type: "sysfs", source: "sysfs", options: ["nosuid", "noexec", "nodev", "ro"] },
      {
        destination: "/sys/fs/cgroup",
        type: "cgroup",
        source: "cgroup",
        options: ["nosuid", "noexec", "nodev", ...readOnly],
      },
      { destination: "/tmp", type: "tmpfs", source: "tmpfs" },
      { destination: "/run", type: "tmpfs", source: "tmpfs" },
      { destination: insidePaths.shared, type: "bind", source: insidePaths.shared, options: ["rbind", "rw"] },
    ],
    linux: {
      cgroupsPath: `/kubepods/${id}`,
      resources: {
        devices: [{ allow: true, access: "rwm" }],
        memory: { limit: podLimitBytes },
        // the kubelet's
        unified: { "memory.oom.group": "1" },
      },
      namespaces: ["pid", "ipc", "uts", "mount", ...(ownCgroups ? ["cgroup"] : [])].map((type) => ({ type })),
    },
  };
}
