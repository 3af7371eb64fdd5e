import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** One line of gVisor's source that is changed before it is built. */
interface SourceChange {
  file: string;
  from: string;
  to: string;
}

export const runscChanges: readonly SourceChange[] = [
  {
    // `restore --background` reads pages with 128 parallel readers, which starve the start of the program on small
    // machines: 424 ms to the first byte of a 1,000 MiB image against 81 ms with two.
    file: "pkg/sentry/state/stateio/pagesfile.go",
    from: "pagesFileFDDefaultMaxParallel = 128",
    to: "pagesFileFDDefaultMaxParallel = 2",
  },
  {
    // Images of `checkpoint --leave-running` lose their TCP connections at restore unless the stack is told; with this
    // line --allow-live-tcp-migration of the restore decides.
    file: "runsc/boot/loader.go",
    from: "\tif eps.Stack.IPTables() == nil {",
    to: "\teps.Stack.SetAllowLiveTCPMigration(l.root.conf.AllowLiveTCPMigration)\n\tif eps.Stack.IPTables() == nil {",
  },
];

/** @throws unless `from` occurs exactly once: the pinned source is not the one that the change was made for. */
export function applyChange(source: string, change: SourceChange): string {
  const parts = source.split(change.from);
  if (parts.length !== 2) {
    throw new Error(`${change.file}: "${change.from.trim()}" occurs ${parts.length - 1} times instead of once`);
  }
  return parts.join(change.to);
}

/** Copies the module's source (read-only in Go's cache) and changes the copy. */
export function copyChangedSource(moduleSource: string, target: string): void {
  cpSync(moduleSource, target, { recursive: true, mode: 0 });
  for (const change of runscChanges) {
    const path = join(target, change.file);
    const changed = applyChange(readFileSync(path, "utf8"), change);
    writeFileSync(path, changed);
  }
}
