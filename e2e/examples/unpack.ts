import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type OciLayout } from "@substrate/examples/oci.ts";

/** Makes the image's only layer a root file system, with the mount points of a sandbox. */
export function unpack({ reference, digest }: OciLayout, root: string): void {
  const layout = reference.replace(/^oci:/, "").replace(/@.*/, "");
  const blob = (of: string): string => join(layout, "blobs/sha256", of.replace("sha256:", ""));
  const manifest = JSON.parse(readFileSync(blob(digest), "utf8")) as { layers: { digest: string }[] };
  for (const name of ["proc", "dev", "sys", "tmp", "run/ate"]) mkdirSync(join(root, name), { recursive: true });
  execFileSync("tar", ["-xf", blob(manifest.layers[0]?.digest ?? ""), "-C", root]);
}
