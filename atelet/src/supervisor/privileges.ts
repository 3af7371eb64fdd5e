import { accessSync, constants, readFileSync } from "node:fs";

/** linux/capability.h: what sandboxes, their network and their volumes are made with. */
const capabilities = { CAP_NET_ADMIN: 12, CAP_SYS_CHROOT: 18, CAP_SYS_PTRACE: 19, CAP_SYS_ADMIN: 21, CAP_MKNOD: 27 };

/** What a container may write only if it is privileged. */
const written = [
  "/proc/sys/net/ipv4/ip_forward",
  "/sys/fs/cgroup/memory/cgroup.procs", // v1
  "/sys/fs/cgroup/cgroup.procs", // v2
];

/** Names of the needed capabilities that a /proc/PID/status says are missing. */
export function missingCapabilities(status: string): string[] {
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0"}`);
  return Object.entries(capabilities)
    .filter(([, bit]) => (effective & (1n << BigInt(bit))) === 0n)
    .map(([name]) => name);
}

/** Throws, naming all that is missing and the setting that gives it, if this process may not do what the node needs. */
export function requirePrivileges(): void {
  const missing = missingCapabilities(readFileSync("/proc/self/status", "utf8"));
  const readOnly = written.filter((file) => isUnwritable(file));
  const lacks = [...missing, ...readOnly.map((file) => `write access to ${file}`)];
  if (lacks.length === 0) return;
  throw new Error(
    `the atelet lacks ${lacks.join(", ")}: its container must be privileged (securityContext.privileged: true in its pod)`,
  );
}

/** A file that isn't there is another matter: who needs it says so. */
function isUnwritable(file: string): boolean {
  try {
    accessSync(file, constants.W_OK);
    return false;
  } catch (error) {
    if (!(error instanceof Error && "code" in error)) throw error;
    return error.code === "EROFS" || error.code === "EACCES";
  }
}
