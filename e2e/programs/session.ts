import { join, resolve } from "node:path";
import { type OciLayout } from "@substrate/examples/oci.ts";
import { buildGoImage } from "@substrate/examples/programs.ts";

/**
 * A program that keeps connections (see session/main.go), to be an actor, and to be run beside one.
 * @param outDir absolute
 */
export async function buildSession(outDir: string): Promise<{ image: OciLayout; binary: string }> {
  const sourceDir = resolve(import.meta.dirname, "session");
  const image = await buildGoImage({ name: "session", sourceDir, port: 8080, outDir });
  return { image, binary: join(outDir, "bin", "session") };
}
