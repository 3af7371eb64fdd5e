import { spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { resolve } from "node:path";
import { type ToolSettings } from "../config.ts";
import { type Say } from "./build.ts";
import { type ToolGroup } from "./table.ts";

const APT_TIMEOUT_MS = 5 * 60_000;

interface Program {
  /** Found on PATH, or the file itself. */
  program: string;
  /** The Debian package that has it. */
  package: string;
}

/** Programs of the distribution that the parts (local) and the nodes of a test cluster (cluster) start. */
const distributionPrograms: Readonly<Record<ToolGroup, readonly Program[]>> = {
  local: [
    { program: "nft", package: "nftables" },
    { program: "ip", package: "iproute2" },
    { program: "nsenter", package: "util-linux" },
    { program: "unshare", package: "util-linux" },
    { program: "mount", package: "mount" },
  ],
  cluster: [
    { program: "containerd", package: "containerd" },
    { program: "ctr", package: "containerd" },
    { program: "runc", package: "runc" },
    { program: "/usr/lib/cni/bridge", package: "containernetworking-plugins" },
    { program: "iptables", package: "iptables" },
    { program: "conntrack", package: "conntrack" },
    { program: "tar", package: "tar" },
    { program: "buildah", package: "buildah" },
    { program: "skopeo", package: "skopeo" },
  ],
  flux: [],
};

function has(program: string, settings: ToolSettings): boolean {
  // Debian keeps administrators' programs in /usr/sbin, which a root shell without login may lack in PATH.
  return [...settings.searchPath, "/usr/sbin", "/sbin"].some((folder) => {
    try {
      accessSync(resolve(folder, program), constants.X_OK);
      return true;
    } catch (error) {
      if (error instanceof Error && "code" in error) return false;
      throw error;
    }
  });
}

function apt(args: readonly string[], settings: ToolSettings): void {
  const { status, error, stderr } = spawnSync("apt-get", ["-q", "-y", ...args], {
    encoding: "utf8",
    env: { ...settings.environment, DEBIAN_FRONTEND: "noninteractive" },
    timeout: APT_TIMEOUT_MS,
  });
  if (status !== 0) throw new Error(`apt-get ${args.join(" ")} failed: ${error?.message ?? stderr.trim()}`);
}

/** The group's programs of the distribution that this machine lacks. */
export function missingPrograms(group: ToolGroup, settings: ToolSettings): readonly Program[] {
  return distributionPrograms[group].filter(({ program }) => !has(program, settings));
}

/** Installs the Debian packages whose programs are missing, and says so. */
export function ensurePackages(group: ToolGroup, settings: ToolSettings, say: Say): void {
  const missing = missingPrograms(group, settings);
  if (missing.length === 0) return;
  const names = [...new Set(missing.map((entry) => entry.package))];
  const list = names.join(", ");
  if (!has("apt-get", settings)) throw new Error(`install ${list} with this system's package manager and try again`);
  say(`  installing the Debian packages ${list} with apt-get`);
  const started = performance.now();
  apt(["update"], settings);
  apt(["install", "--no-install-recommends", ...names], settings);
  say(`  installed ${list} in ${((performance.now() - started) / 1000).toFixed(1)} s`);
}
