import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { type RigProgram } from "../../sandbox/rig.ts";

const descriptorSchema = z.object({ digest: z.string().regex(/^sha256:[0-9a-f]{64}$/) });
const indexSchema = z.object({ manifests: z.array(descriptorSchema).length(1) });
const manifestSchema = z.object({ config: descriptorSchema, layers: z.array(descriptorSchema).length(1) });
const imageSchema = z.object({
  config: z.object({
    Entrypoint: z.array(z.string()),
    Env: z.array(z.string()).default([]),
    WorkingDir: z.string().default("/"),
  }),
});

/**
 * Unpacks an image of one layer, as this checkout's builds make them, for a sandbox that nobody but runsc makes.
 * @param layout folder of its OCI layout. @param dir absolute; becomes the root file system.
 */
export function unpacked(name: string, layout: string, dir: string, args: readonly string[]): RigProgram {
  const blob = (digest: string): string => join(layout, "blobs", "sha256", digest.replace("sha256:", ""));
  const json = (path: string): unknown => JSON.parse(readFileSync(path, "utf8"));
  const [{ digest } = { digest: "" }] = indexSchema.parse(json(join(layout, "index.json"))).manifests;
  const manifest = manifestSchema.parse(json(blob(digest)));
  const { config } = imageSchema.parse(json(blob(manifest.config.digest)));
  mkdirSync(dir, { recursive: true });
  for (const layer of manifest.layers) execFileSync("tar", ["-xf", blob(layer.digest), "-C", dir]);
  // runsc's own mount points
  for (const folder of ["proc", "dev", "sys", "tmp", "run/ate"]) mkdirSync(join(dir, folder), { recursive: true });
  return { name, rootfsDir: dir, args: [...config.Entrypoint, ...args], env: config.Env, cwd: config.WorkingDir };
}
