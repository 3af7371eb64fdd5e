import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { buildOciLayout, type OciLayout } from "./oci.ts";

const run = promisify(execFile);

/** A cold build of the standard library on two busy cores takes about a minute. */
const buildTimeoutMs = 300_000;

/**
 * Builds a Go program without dependencies into a static binary and an image that holds nothing else. Go's own cache
 * makes a repeated build cheap.
 *
 * @param outDir absolute; gets `bin/` and the OCI layout `image/`.
 */
export async function buildGoImage(options: {
  name: string;
  sourceDir: string;
  port: number;
  outDir: string;
}): Promise<OciLayout> {
  const { name, sourceDir, outDir } = options;
  const binary = join(outDir, "bin", name);
  await mkdir(join(outDir, "bin"), { recursive: true });
  const args = ["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, "."];
  await run("env", ["CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "go", ...args], {
    cwd: sourceDir,
    timeout: buildTimeoutMs,
  }).catch((error: unknown) => {
    throw new Error(`building ${sourceDir} with go failed; is Go on PATH?`, { cause: error });
  });
  return buildOciLayout({
    name,
    files: [{ path: `/bin/${name}`, mode: 0o755, source: binary }],
    config: { entrypoint: [`/bin/${name}`], exposedPorts: [`${options.port}/tcp`] },
    outDir: join(outDir, "image"),
  });
}

/** The program of examples/counter. @param outDir absolute; reused by later builds. */
export function buildCounter(outDir: string): Promise<OciLayout> {
  const sourceDir = resolve(import.meta.dirname, "..", "counter");
  return buildGoImage({ name: "counter", sourceDir, port: 8080, outDir });
}
