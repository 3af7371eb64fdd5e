import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { accessSync, constants, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { type ToolSettings } from "../config.ts";
import { isStateBin } from "../state-folder.ts";
import { type ClusterToolName, type LocalToolName, type Tool, toolTable, type ToolName } from "./table.ts";

/** Absolute path of every tool of `npm start`. */
export type ToolPaths = Readonly<Record<LocalToolName, string>>;
/** Those and the ones of a test cluster of real nodes. */
export type ClusterToolPaths = Readonly<Record<LocalToolName | ClusterToolName, string>>;

export interface FoundTool {
  path: string;
  /** Where it was found, for people: a variable's name, "PATH" or "cache". */
  source: string;
  /** Known of programs of PATH only. */
  version?: string;
}

const VERSION_TIMEOUT_MS = 10_000;

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch (error) {
    if (error instanceof Error && "code" in error) return false;
    throw error;
  }
}

export function moduleFolder(tool: Pick<Tool, "module">): string {
  return join(import.meta.dirname, "../../tools", tool.module);
}

/** Everything that decides what the built program is, but for the Go toolchain. */
function inputsHash(tool: Tool): string {
  const hash = createHash("sha256");
  const folder = moduleFolder(tool);
  for (const file of readdirSync(folder).sort()) {
    hash
      .update(`${file}\0`)
      .update(readFileSync(join(folder, file)))
      .update("\0");
  }
  return hash
    .update(`${tool.package}\0${tool.ldflags}${tool.manifests ?? ""}`)
    .digest("hex")
    .slice(0, 12);
}

export function cachedPath(tool: Tool, settings: ToolSettings): string {
  return join(settings.cacheDir, `${tool.binary}-${tool.version}-${inputsHash(tool)}`, tool.binary);
}

function onPath(tool: Tool, settings: ToolSettings): FoundTool | undefined {
  // what a state folder links to was found by this very search, maybe by another version of it
  for (const folder of settings.searchPath.filter((entry) => !isStateBin(entry))) {
    const path = join(folder, tool.binary);
    if (!isExecutable(path)) continue;
    const { stdout, status } = spawnSync(path, tool.versionArguments, {
      encoding: "utf8",
      timeout: VERSION_TIMEOUT_MS,
      env: settings.environment,
    });
    const version = status === 0 ? tool.fittingVersion(stdout) : undefined;
    if (version !== undefined) return { path, source: "PATH", version };
  }
  return undefined;
}

/**
 * The program to use: the one named by its variable, else a built one in the cache, else a fitting one on PATH;
 * undefined when it must be built first.
 * @throws if the variable names something that is not an executable file.
 */
export function findTool(tool: Tool, settings: ToolSettings): FoundTool | undefined {
  const named = settings.named.get(tool.variable);
  if (named !== undefined) {
    if (!named.startsWith("/") || !isExecutable(named)) {
      throw new Error(`${tool.variable}=${named} must be the absolute path of an executable ${tool.binary}`);
    }
    return { path: named, source: tool.variable };
  }
  const cached = cachedPath(tool, settings);
  if (isExecutable(cached)) return { path: cached, source: "cache" };
  return onPath(tool, settings);
}

function findAll<Name extends ToolName>(
  tools: readonly Tool[],
  settings: ToolSettings,
  fix: string,
): Readonly<Record<Name, string>> {
  const entries = tools.map((tool) => {
    const found = findTool(tool, settings);
    if (found === undefined) throw new Error(`${tool.binary} ${tool.version} is missing; run: ${fix}`);
    return [tool.name, found.path] as const;
  });
  return Object.fromEntries(entries) as Record<Name, string>;
}

/** @throws if one is missing: `node local/setup.mjs` gets it. */
export function findTools(settings: ToolSettings): ToolPaths {
  return findAll<LocalToolName>(toolTable.local, settings, "node local/setup.mjs");
}

/** @throws if one is missing: `node local/setup.mjs --with-cluster` gets it. */
export function findClusterTools(settings: ToolSettings): ClusterToolPaths {
  const all = [...toolTable.local, ...toolTable.cluster];
  return findAll<LocalToolName | ClusterToolName>(all, settings, "node local/setup.mjs --with-cluster");
}
