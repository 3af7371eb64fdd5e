import { join } from "node:path";
import { parseArgs } from "node:util";
import { toolSettings, type ToolSettings } from "../config.ts";
import { lock } from "../flock.ts";
import { buildTools, type Say } from "./build.ts";
import { findTool } from "./find.ts";
import { ensurePackages } from "./packages.ts";
import { type ToolGroup, toolTable } from "./table.ts";

const PACKAGES_TIMEOUT_MS = 10 * 60_000;

/** Gets every program of the group. @throws naming the first that cannot be had. */
async function setUp(group: ToolGroup, settings: ToolSettings, say: Say): Promise<void> {
  // apt-get refuses to run beside another one
  const held = await lock(join(settings.cacheDir, "packages.lock"), PACKAGES_TIMEOUT_MS, () => {
    say("  another setup looks for Debian packages, waiting for it");
  });
  try {
    ensurePackages(group, settings, say);
  } finally {
    held.release();
  }
  const tools = toolTable[group];
  const missing = tools.filter((tool) => findTool(tool, settings) === undefined);
  if (missing.length > 0) await buildTools(missing, settings, say);
  for (const tool of tools) {
    const found = findTool(tool, settings);
    if (found === undefined) throw new Error(`${tool.binary} was built but is not in ${settings.cacheDir}`);
    if (found.source === "cache") continue;
    const version = found.version === undefined ? "" : ` ${found.version}`;
    say(`  using ${tool.binary}${version}: ${found.path} (from ${found.source}; ${tool.version} would be built)`);
  }
}

/** Gets what local/ and the tests start; run by local/setup.mjs. */
async function main(): Promise<void> {
  const say: Say = (line) => {
    process.stdout.write(`${line}\n`);
  };
  const { values } = parseArgs({
    options: { "with-cluster": { type: "boolean", default: false }, "with-flux": { type: "boolean", default: false } },
  });
  const settings = toolSettings();
  await setUp("local", settings, say);
  if (!values["with-cluster"] && !values["with-flux"]) return;
  try {
    await setUp("cluster", settings, say);
  } catch (error) {
    // the other tests don't need it, and those that do say what is missing
    const why = error instanceof Error ? error.message : String(error);
    say(`  a test cluster of real nodes cannot be had, its tests will be skipped: ${why}`);
    return;
  }
  if (!values["with-flux"]) return;
  try {
    await setUp("flux", settings, say);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    say(`  Flux cannot be had, its tests will be skipped: ${why}`);
  }
}

try {
  await main();
} catch (error) {
  process.stderr.write(`setup: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
