import { lstatSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { bundleCli } from "@substrate/cli/bundle.ts";
import { scripts } from "@substrate/cli/completion.ts";

/**
 * Puts `kubectl ate` into the folder: one file that the system's own Node runs wherever kubectl finds it. Beside it the
 * program that kubectl's own completion asks about it.
 */
export async function bundlePlugin(folder: string): Promise<void> {
  writeFileSync(join(folder, "kubectl_complete-ate"), scripts.kubectl, { mode: 0o755 });
  await bundleCli(join(folder, "kubectl-ate"));
}

/** Makes the kubectl that is used here the one that a shell with `folder` on PATH finds. */
export function linkKubectl(folder: string, kubectl: string): void {
  const link = join(folder, "kubectl");
  // named by its variable: it must not become a link to itself
  if (kubectl === link) return;
  if (lstatSync(link, { throwIfNoEntry: false }) !== undefined) rmSync(link);
  symlinkSync(kubectl, link);
}
