import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { spawnSync } from "node:child_process";
import { PodCgroup } from "@substrate/local/pod/pod-cgroup.ts";

function lines(program: string, args: readonly string[]): string[] {
  const { stdout, stderr, status } = spawnSync(program, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${stderr}`);
  return stdout.split("\n").filter(Boolean);
}

/** What of /proc/PID/… of a process that may end at any moment. */
function orEmpty(read: () => string): string {
  try {
    return read();
  } catch (error) {
    if (error instanceof Error && "code" in error) return "";
    throw error;
  }
}

interface SeenProcess {
  pid: string;
  commandLine: string;
  networkNamespace: string;
}

function processes(): SeenProcess[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => ({
      pid,
      commandLine: orEmpty(() => readFileSync(`/proc/${pid}/cmdline`, "utf8"))
        .replaceAll("\0", " ")
        .trim(),
      networkNamespace: orEmpty(() => readlinkSync(`/proc/${pid}/ns/net`)),
    }));
}

function cgroupFolders(id: string): string[] {
  return new PodCgroup(id).folders().filter((folder) => existsSync(folder));
}

/**
 * What a local cluster has of the machine now, one line each: processes, mounts, network namespaces, interfaces,
 * nftables tables, routes and cgroups. Empty after a clean end. Others' things are not counted.
 * @param id the cluster's id, which is part of all its names.
 */
export function belongings(stateDir: string, id: string): string[] {
  const all = processes();
  const own = all.filter(({ commandLine, pid }) => commandLine.includes(`${stateDir}/`) && pid !== `${process.pid}`);
  const machine = orEmpty(() => readlinkSync("/proc/self/ns/net"));
  const namespaces = new Set(
    own.map((entry) => entry.networkNamespace).filter((name) => name !== machine && name !== ""),
  );
  return [
    ...own.map(({ pid, commandLine }) => `process ${pid}: ${commandLine.slice(0, 200)}`),
    ...[...namespaces].map((name) => `network namespace ${name}`),
    ...readFileSync("/proc/self/mountinfo", "utf8")
      .split("\n")
      .filter((line) => line.includes(`${stateDir}/`))
      .map((line) => `mount ${line}`),
    ...readdirSync("/sys/class/net")
      .filter((name) => name === `sub${id}`)
      .map((name) => `interface ${name}`),
    ...lines("nft", ["list", "tables"]).filter((line) => line.endsWith(`substrate_${id}`)),
    ...cgroupFolders(id).map((folder) => `cgroup ${folder}`),
  ];
}

/** Unreachable routes for pods of local clusters; those of clusters that run now are among them. */
export function podRoutes(): string[] {
  return lines("ip", ["route", "show", "type", "unreachable"]).filter((line) => line.includes("10.214."));
}
