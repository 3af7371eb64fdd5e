import { chmodSync, lstatSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const entry = join(import.meta.dirname, "../../cli/src/main.ts");

/** Bundles `kubectl ate` into one file that the system's own Node runs wherever kubectl finds it. */
export async function bundlePlugin(folder: string): Promise<string> {
  const outfile = join(folder, "kubectl-ate");
  await build({
    entryPoints: [entry],
    outfile,
    bundle: true,
    platform: "node",
    target: "node20",
    // a file without extension is CommonJS for Node
    format: "cjs",
    banner: { js: "#!/usr/bin/env node" },
    logLevel: "silent",
    minifySyntax: true,
  });
  chmodSync(outfile, 0o755);
  return outfile;
}

/** Makes the kubectl that is used here the one that a shell with `folder` on PATH finds. */
export function linkKubectl(folder: string, kubectl: string): void {
  const link = join(folder, "kubectl");
  if (lstatSync(link, { throwIfNoEntry: false }) !== undefined) rmSync(link);
  symlinkSync(kubectl, link);
}
