import { join } from "node:path";
import { buildOciLayout, type OciLayout } from "@substrate/examples/oci.ts";
import { systemNode } from "@substrate/examples/system-node.ts";

/** A Node server that asks another one over a kept connection (see chatter/app.mjs). @param outDir absolute. */
export async function buildChatter(outDir: string): Promise<OciLayout> {
  const { files, env, program } = await systemNode();
  const source = join(import.meta.dirname, "chatter/app.mjs");
  return buildOciLayout({
    name: "chatter",
    files: [...files, { path: "/app/app.mjs", mode: 0o644, source }],
    config: { entrypoint: [program, "/app/app.mjs"], env, exposedPorts: ["8080/tcp"] },
    outDir: join(outDir, "image"),
  });
}
