import { buildGoImage } from "@substrate/examples/programs.ts";
import { type OciLayout } from "@substrate/examples/oci.ts";
import { resolve } from "node:path";

/** The program of tests and benchmarks (see glutton/main.go). @param outDir absolute; reused by later builds. @param signal gives the build up. */
export function buildGlutton(outDir: string, signal?: AbortSignal): Promise<OciLayout> {
  return buildGoImage({
    name: "glutton",
    sourceDir: resolve(import.meta.dirname, "glutton"),
    port: 8080,
    outDir,
    signal,
  });
}
