import { chmodSync, closeSync, ftruncateSync, mkdirSync, openSync, readFileSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { Flock } from "../store/flock.ts";

/** The node folder, private and locked. The lock lasts as long as any process has `lockFd`. */
export interface NodeFolder {
  lockFd: number;
}

/**
 * Makes the folder 0700 and takes its lock, so that two atelets never share it. Throws, naming the folder and the
 * holder's pid, if somebody has it.
 */
export function lockNodeFolder(dir: string): NodeFolder {
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const { uid } = statSync(dir);
  if (uid !== process.getuid?.()) throw new Error(`--state-dir ${dir} belongs to user ${uid}: chown it to this one`);
  chmodSync(dir, 0o700);
  const file = join(dir, "lock");
  const lockFd = openSync(file, "a+", 0o600);
  if (!new Flock().try(lockFd)) {
    closeSync(lockFd);
    const holder = readFileSync(file, "utf8").trim() || "unknown";
    throw new Error(
      `--state-dir ${dir} is in use by the atelet whose supervisor is process ${holder}: ` +
        "stop that one first, or give this one another folder",
    );
  }
  ftruncateSync(lockFd);
  writeSync(lockFd, `${process.pid}\n`);
  return { lockFd };
}
