import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, realpathSync, renameSync, writeFileSync, existsSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { z } from "zod";
import { type FileLock, tryLock } from "./flock.ts";

/** Unix sockets below the folder must stay within the 108 bytes of sun_path (unix(7)). */
const MAX_PATH = 60;

const settingsSchema = z.object({
  format: z.literal(1),
  /** Index of the /30 between the machine and the atelet's pod. */
  subnet: z.number().int().min(0).max(16_383).optional(),
  /** Ports of the last start by use: they are taken again if they are free. */
  ports: z.record(z.string(), z.number().int()),
});
export type StateSettings = z.infer<typeof settingsSchema>;

/** Whether this is the folder of programs of any local cluster's state folder: people put it on their PATH. */
export function isStateBin(folder: string): boolean {
  if (!existsSync(folder)) return false;
  const path = realpathSync(folder);
  const isOurs = ["lock", "pki", "run"].every((name) => existsSync(join(dirname(path), name)));
  return basename(path) === "bin" && isOurs;
}

/** Everything a local cluster keeps, in one folder that one process at a time may use. */
export class StateFolder {
  readonly path: string;
  /** Eight hex digits of the path: names the interface, nft table and cgroup of this cluster. */
  readonly id: string;
  readonly #lock: FileLock;

  private constructor(path: string, lock: FileLock) {
    this.path = path;
    this.id = createHash("sha256").update(path).digest("hex").slice(0, 8);
    this.#lock = lock;
  }

  /** @throws if the path is too long for sockets, or another process uses the folder. */
  static open(folder: string): StateFolder {
    mkdirSync(resolve(folder), { recursive: true, mode: 0o700 });
    const path = realpathSync(folder);
    if (path.length > MAX_PATH) {
      throw new Error(`the state folder ${path} has more than ${MAX_PATH} characters; name a shorter one with --state`);
    }
    const lockFile = join(path, "lock");
    const lock = tryLock(lockFile);
    if (lock === undefined) {
      const pid = readFileSync(lockFile, "utf8").trim();
      throw new Error(
        `a local cluster already runs on ${path} (process ${pid}): stop it, or name another folder with --state DIR`,
      );
    }
    writeFileSync(lockFile, `${process.pid}\n`);
    for (const child of ["pki", "run", "log", "kube", "bin", "examples"]) {
      mkdirSync(join(path, child), { recursive: true, mode: 0o700 });
    }
    return new StateFolder(path, lock);
  }

  /** A path inside the folder. */
  file(...parts: string[]): string {
    return join(this.path, ...parts);
  }

  readSettings(): StateSettings {
    const file = this.file("settings.json");
    if (!existsSync(file)) return { format: 1, ports: {} };
    const parsed = settingsSchema.safeParse(JSON.parse(readFileSync(file, "utf8")));
    if (!parsed.success) {
      throw new Error(`${file} was not written by this version: ${z.prettifyError(parsed.error)}; move it away`);
    }
    return parsed.data;
  }

  writeSettings(settings: StateSettings): void {
    const file = this.file("settings.json");
    writeFileSync(`${file}.tmp`, `${JSON.stringify(settings, undefined, 2)}\n`);
    renameSync(`${file}.tmp`, file);
  }

  /** Lets another process use the folder. */
  close(): void {
    this.#lock.release();
  }
}
