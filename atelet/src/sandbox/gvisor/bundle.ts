import { mkdir, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { type SandboxSpec } from "../sandbox.ts";

/** Period of the CPU quota in microseconds: the kernel's default. */
const cpuPeriodUs = 100_000;

/** Processes of the runtime in the sandbox's cgroup: systrap keeps a host process or thread per guest thread. */
const pidsLimit = 4096;

/** What container engines grant by default, less NET_RAW and MKNOD, which only widen the attack surface here. */
const rootCapabilities = [
  "CAP_AUDIT_WRITE",
  "CAP_CHOWN",
  "CAP_DAC_OVERRIDE",
  "CAP_FOWNER",
  "CAP_FSETID",
  "CAP_KILL",
  "CAP_NET_BIND_SERVICE",
  "CAP_SETFCAP",
  "CAP_SETGID",
  "CAP_SETPCAP",
  "CAP_SETUID",
  "CAP_SYS_CHROOT",
] as const;

/**
 * Where runsc looks for a rootfs tar, relative to the bundle, in which it is started: a restore compares the annotation
 * that names it, and images go to other actors and nodes.
 */
const rootfsTarName = "rootfs.tar";
const rootfsTarAnnotation = "dev.gvisor.tar.rootfs.upper";

/** Destination, type and options of mounts are compared at restore: this list may only change with a new runtime. */
function mounts({ identityDir, volumes }: SandboxSpec): object[] {
  const tmpfs = ["nosuid", "nodev", "mode=1777"];
  return [
    { destination: "/proc", type: "proc", source: "proc" },
    { destination: "/dev", type: "tmpfs", source: "tmpfs", options: ["nosuid", "strictatime", "mode=755"] },
    { destination: "/dev/pts", type: "devpts", source: "devpts", options: ["nosuid", "noexec"] },
    { destination: "/dev/shm", type: "tmpfs", source: "shm", options: tmpfs },
    { destination: "/sys", type: "sysfs", source: "sysfs", options: ["nosuid", "noexec", "nodev", "ro"] },
    { destination: "/tmp", type: "tmpfs", source: "tmpfs", options: tmpfs },
    {
      destination: "/run/ate",
      type: "bind",
      source: identityDir,
      options: ["bind", "ro", "nosuid", "nodev", "noexec"],
    },
    ...volumes.map(({ source, destination }) => ({
      destination,
      type: "bind",
      source,
      options: ["bind", "rw", "nosuid", "nodev"],
    })),
  ];
}

/**
 * The OCI configuration of one sandbox: a function of its spec alone, as a restore compares args, mounts and
 * annotations with those of the image.
 * @param cpuQuota false leaves the CPU unlimited but for its share: a restore under a small quota would take many
 * times as long; the cgroup's owner sets the quota once the actor answers.
 */
function ociConfig(spec: SandboxSpec, cpuQuota: boolean): object {
  const capabilities = spec.uid === 0 ? rootCapabilities : [];
  return {
    ociVersion: "1.1.0",
    process: {
      terminal: false,
      user: { uid: spec.uid, gid: spec.gid },
      args: spec.args,
      env: spec.env,
      cwd: spec.cwd,
      capabilities: { bounding: rootCapabilities, effective: capabilities, permitted: capabilities },
      noNewPrivileges: true,
    },
    root: { path: spec.rootfsDir, readonly: false },
    hostname: spec.hostname,
    mounts: mounts(spec),
    ...(spec.rootfsTar !== undefined && { annotations: { [rootfsTarAnnotation]: rootfsTarName } }),
    linux: {
      cgroupsPath: spec.cgroupPath,
      resources: {
        memory: { limit: spec.memoryLimitBytes },
        cpu: {
          shares: Math.max(2, Math.floor((spec.cpuMillis * 1024) / 1000)),
          ...(cpuQuota ? { period: cpuPeriodUs, quota: Math.max(1000, (spec.cpuMillis * cpuPeriodUs) / 1000) } : {}),
        },
        pids: { limit: pidsLimit },
      },
      namespaces: [
        { type: "pid" },
        { type: "ipc" },
        { type: "uts" },
        { type: "mount" },
        { type: "network", path: spec.netnsPath },
      ],
    },
  };
}

/**
 * Writes config.json, and a link to the rootfs tar if there is one, without fsync and in place: no sandbox runs that
 * holds the old one, every start makes it again (R21), and a temporary name would stay after a crash, with the secrets
 * of the environment in it.
 */
export async function writeBundle(spec: SandboxSpec, options: { cpuQuota: boolean }): Promise<void> {
  await mkdir(spec.bundleDir, { recursive: true, mode: 0o700 });
  const link = join(spec.bundleDir, rootfsTarName);
  await rm(link, { force: true });
  if (spec.rootfsTar !== undefined) await symlink(spec.rootfsTar, link);
  // The environment is in it, and secrets in that.
  await writeFile(join(spec.bundleDir, "config.json"), JSON.stringify(ociConfig(spec, options.cpuQuota)), {
    mode: 0o600,
  });
}
