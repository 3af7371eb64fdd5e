import { spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { join } from "node:path";
import { type ToolSettings } from "../config.ts";
import { type Say } from "./build.ts";

const APT_TIMEOUT_MS = 5 * 60_000;

/** Programs of the distribution that the parts start, and the Debian package of each. */
const programs: readonly { program: string; package: string }[] = [
  { program: "nft", package: "nftables" },
  { program: "ip", package: "iproute2" },
  { program: "nsenter", package: "util-linux" },
  { program: "unshare", package: "util-linux" },
  { program: "mount", package: "mount" },
];

function has(program: string, settings: ToolSettings): boolean {
  // Debian keeps administrators' programs in /usr/sbin, which a root shell without login may lack in PATH.
  return [...settings.searchPath, "/usr/sbin", "/sbin"].some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
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

/** Installs the Debian packages whose programs are missing, and says so. */
export function ensurePackages(settings: ToolSettings, say: Say): void {
  const missing = programs.filter(({ program }) => !has(program, settings));
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
