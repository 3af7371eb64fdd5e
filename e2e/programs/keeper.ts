import { type OciLayout } from "@substrate/examples/oci.ts";
import { buildGoImage } from "@substrate/examples/programs.ts";
import { resolve } from "node:path";

/** The program of the tests of volumes (see keeper/main.go). @param outDir absolute; reused by later builds. */
export function buildKeeper(outDir: string): Promise<OciLayout> {
  return buildGoImage({ name: "keeper", sourceDir: resolve(import.meta.dirname, "keeper"), port: 8080, outDir });
}
