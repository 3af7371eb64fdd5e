import { readFileSync } from "node:fs";
import { release } from "node:os";
import { toolSettings } from "@substrate/local/config.ts";
import { findTool } from "@substrate/local/tools/find.ts";
import { missingPrograms } from "@substrate/local/tools/packages.ts";
import { toolTable } from "@substrate/local/tools/table.ts";

const FIX = "run: node local/setup.mjs --with-cluster";

/** Why this machine cannot run a test cluster, with what to do about it; undefined if it can. */
export function whyNoCluster(): string | undefined {
  if (process.getuid?.() !== 0) return "a test cluster needs root";
  const settings = toolSettings();
  const packages = missingPrograms("cluster", settings).map((entry) => `${entry.program} (${entry.package})`);
  const tools = [...toolTable.local, ...toolTable.cluster].filter((tool) => findTool(tool, settings) === undefined);
  const missing = [...packages, ...tools.map((tool) => `${tool.binary} ${tool.version}`)];
  if (missing.length > 0) return `${missing.join(", ")} missing; ${FIX}`;
  const filesystems = readFileSync("/proc/filesystems", "utf8");
  if (!/\boverlay$/m.test(filesystems)) return `kernel ${release()} has no overlay file system: modprobe overlay`;
  return undefined;
}
