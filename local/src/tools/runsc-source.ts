import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** A place in gVisor's source that is changed before it is built. */
interface SourceChange {
  file: string;
  from: string;
  to: string;
}

/**
 * A restore into a sandbox that was created before takes host name, environment (of later execs), output and
 * --allow-live-tcp-migration from the sandbox's creation. With these changes they are those of the restore, so that
 * sandboxes can be created before it is known for whom.
 */
const restoreIntoCreated: readonly SourceChange[] = [
  {
    file: "runsc/cmd/restore.go",
    from: "\t\trunArgs.Spec = c.Spec\n",
    to:
      "\t\tgiven, err := specutils.ReadSpec(bundleDir, conf)\n" +
      "\t\tif err != nil {\n" +
      '\t\t\treturn util.Errorf("reading spec: %v", err)\n' +
      "\t\t}\n" +
      "\t\tc.Spec.Hostname, c.Spec.Process.Env = given.Hostname, given.Process.Env\n" +
      "\t\trunArgs.Spec = c.Spec\n",
  },
  {
    file: "runsc/sandbox/sandbox.go",
    from: "\t\tBackground: background,\n\t}\n",
    to:
      "\t\tBackground: background,\n" +
      "\t\tHostname: spec.Hostname,\n" +
      "\t\tAllowLiveTCPMigration: conf.AllowLiveTCPMigration,\n" +
      "\t}\n",
  },
  {
    file: "runsc/sandbox/sandbox.go",
    from: "\tif err := conn.Call(boot.ContMgrRestore, &opt, nil); err != nil {",
    to:
      "\topt.FilePayload.Files = append(opt.FilePayload.Files, os.Stdin, os.Stdout, os.Stderr)\n" +
      "\tif err := conn.Call(boot.ContMgrRestore, &opt, nil); err != nil {",
  },
  {
    file: "runsc/boot/controller.go",
    from: "\tHaveDeviceFile bool\n\tBackground     bool\n",
    to:
      "\tHaveDeviceFile bool\n\tBackground     bool\n" +
      "\t// Of the restore, not of the creation. FilePayload ends with stdin, stdout and stderr.\n" +
      "\tHostname string\n" +
      "\tAllowLiveTCPMigration bool\n",
  },
  {
    file: "runsc/boot/controller.go",
    from: "\tstateFile, pagesMetadata, pagesFile, err := getRestoreReaders(o)\n",
    to:
      "\tfirst := len(o.Files) - len(cm.l.root.stdioFDs)\n" +
      "\tif first < 1 {\n" +
      '\t\treturn fmt.Errorf("stdin, stdout and stderr must be passed to Restore")\n' +
      "\t}\n" +
      "\tfor i, target := range cm.l.root.stdioFDs {\n" +
      "\t\tif err := unix.Dup3(int(o.Files[first+i].Fd()), target.FD(), unix.O_CLOEXEC); err != nil {\n" +
      '\t\t\treturn fmt.Errorf("replacing stdio: %w", err)\n' +
      "\t\t}\n" +
      "\t\t_ = o.Files[first+i].Close()\n" +
      "\t}\n" +
      "\to.Files = o.Files[:first]\n" +
      "\tcm.l.root.spec.Hostname = o.Hostname\n" +
      "\tcm.l.root.conf.AllowLiveTCPMigration = o.AllowLiveTCPMigration\n" +
      "\tstateFile, pagesMetadata, pagesFile, err := getRestoreReaders(o)\n",
  },
];

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
  ...restoreIntoCreated,
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
