import { join } from "node:path";
import { toolSettings } from "../config.ts";
import { lock } from "../flock.ts";
import { buildTools } from "./build.ts";
import { findTool } from "./find.ts";
import { ensurePackages } from "./packages.ts";
import { toolTable } from "./table.ts";

const PACKAGES_TIMEOUT_MS = 10 * 60_000;

/** Gets every program that local/ and the tests start; run by local/setup.mjs. */
async function main(): Promise<void> {
  const say = (line: string): void => {
    process.stdout.write(`${line}\n`);
  };
  const settings = toolSettings();
  // apt-get refuses to run beside another one
  const held = await lock(join(settings.cacheDir, "packages.lock"), PACKAGES_TIMEOUT_MS, () => {
    say("  another setup looks for Debian packages, waiting for it");
  });
  ensurePackages(settings, say);
  held.release();
  const missing = toolTable.filter((tool) => findTool(tool, settings) === undefined);
  if (missing.length > 0) await buildTools(missing, settings, say);
  for (const tool of toolTable) {
    const found = findTool(tool, settings);
    if (found === undefined) throw new Error(`${tool.binary} was built but is not in ${settings.cacheDir}`);
    if (found.source === "cache") continue;
    const version = found.version === undefined ? "" : ` ${found.version}`;
    say(`  using ${tool.binary}${version}: ${found.path} (from ${found.source}; ${tool.version} would be built)`);
  }
}

try {
  await main();
} catch (error) {
  process.stderr.write(`setup: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
