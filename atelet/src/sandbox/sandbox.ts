import { SubstrateError } from "@substrate/lib/errors.ts";

/** Everything that a sandbox class needs to know to start or restore one actor. All paths are absolute. */
export interface SandboxSpec {
  /** 32 hex digits, always: runsc takes ids by prefix. */
  id: string;
  /** Folder for the runtime's own configuration; may be made anew at any time (R21). */
  bundleDir: string;
  /** Read-only unpacked image; writes go to the sandbox's own layer in memory. */
  rootfsDir: string;
  args: readonly string[];
  env: readonly string[];
  cwd: string;
  uid: number;
  gid: number;
  hostname: string;
  /** Bind-mounted network namespace with eth0 in it. */
  netnsPath: string;
  /** Bound read-only at /run/ate. */
  identityDir: string;
  /** Folders bound writable into the program's file system; their destinations are part of what a restore compares. */
  volumes: readonly { source: string; destination: string }[];
  /**
   * A tar of `saveRootfs` with which the root file system begins. The restore of a sandbox that began so must name one
   * too, and reads nothing of it: any file will do.
   */
  rootfsTar?: string;
  /** Relative to each controller's root, e.g. "/substrate-1/actors/<id>". */
  cgroupPath: string;
  /** Hard limit of the sandbox's cgroup, the runtime's own overhead included. */
  memoryLimitBytes: number;
  /** Share and quota of the sandbox's cgroup; a restore sets no quota (Cgroups.limitCpu does once it answers). */
  cpuMillis: number;
  /** Opened O_APPEND by the caller of run/restore; survive the atelet. */
  stdoutPath: string;
  stderrPath: string;
}

export interface RestoreOptions {
  /** Folder with the image's files, read in place and never changed (R19, R20). */
  imageDir: string;
  /** Read around the page cache; only for a clean, uncached image (R27). */
  direct: boolean;
  /** Keep established TCP connections; false resets them at once. */
  keepConnections: boolean;
  /**
   * The sandbox was made by `create`. Its spec is that of the creation, but for host name, environment and output, which
   * are the restored program's. What is mounted at the sources of its volumes by now is what the program sees: it is
   * looked whether the sandbox sees it.
   */
  created?: boolean;
}

/**
 * There was nothing to start: not such a program, or not one that can be run. It has written nothing; what stands in its
 * output is the runtime's.
 */
export class NotStartedError extends SubstrateError {}

/** A process that can't be mistaken for a later one with the same pid. */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks since boot (field 22 of /proc/PID/stat). */
  startTicks: number;
}

export interface SandboxStatus {
  id: string;
  status: "creating" | "created" | "running" | "paused" | "stopped";
  pid: number;
}

/** What a class can do; callers ask instead of testing names. */
export interface SandboxCapabilities {
  /** A restore answers before all memory is loaded; waitRestored then tells how the load ended. */
  backgroundRestore: boolean;
  /** A restore can go into a sandbox that was created before it was known for whom. */
  warmRestore: boolean;
  /** The build that reads and writes images; an image is restored by exactly the build that wrote it. */
  runtime: string;
}

export interface ExecOptions {
  command: readonly string[];
  /** The descriptors are one terminal; the program gets it as its controlling one. */
  tty: boolean;
  /** Files, pipes or a terminal, never sockets. They may be closed when `exec` has resolved or rejected. */
  stdio: { stdinFd: number; stdoutFd: number; stderrFd: number };
}

/** A program that was started beside an actor's own. */
export interface SandboxExec {
  /** Its exit code; 128 and the signal's number when one ended it. Rejects when the sandbox ended. */
  ended: Promise<number>;
  /** Kills it with all that it has started; no error if it has ended. */
  kill(): Promise<void>;
}

/** One sandbox class. Knows nothing of snapshots' generations, stores or placement. Every call is bounded in time. */
export interface SandboxRuntime {
  capabilities(): Promise<SandboxCapabilities>;
  /** Creates and starts the program from its image. Throws PROGRAM_EXITED, as NotStartedError where it is none. */
  run(spec: SandboxSpec): Promise<void>;
  /** Makes a sandbox that waits for a restore; on failure nothing is left of it. Throws INTERNAL. */
  create(spec: SandboxSpec): Promise<void>;
  pause(id: string): Promise<void>;
  resume(id: string): Promise<void>;
  /**
   * Writes an image of a paused sandbox into an empty folder and leaves the sandbox paused and alive, so that a
   * failure is undone by resume. Checks that the files are complete. Throws CHECKPOINT_FAILED.
   * @returns bytes of the image, as the files' sizes.
   */
  checkpoint(id: string, imageDir: string, options: { direct: boolean }): Promise<number>;
  /**
   * Writes all that a paused sandbox's program has changed in its root file system into a new tar. Throws
   * CHECKPOINT_FAILED; the sandbox stays as it was.
   */
  saveRootfs(id: string, file: string): Promise<void>;
  /** Tells the program's first process; no error if it has ended. */
  signal(id: string, signal: "SIGTERM"): Promise<void>;
  /**
   * Runs a program in a running sandbox; resolves when it has begun. A checkpoint does not wait for it, and after a
   * restore its descriptors are dead. Throws INVALID when there is no such program.
   */
  exec(id: string, options: ExecOptions): Promise<SandboxExec>;
  /** Restores an image into a new sandbox, or a created one; on failure nothing is left of it. Throws RESTORE_FAILED. */
  restore(spec: SandboxSpec, options: RestoreOptions): Promise<void>;
  /** Resolves when all memory of a background restore is loaded; throws RESTORE_FAILED if the load failed. */
  waitRestored(id: string): Promise<void>;
  /** Kills and removes; no process, mount, cgroup or file of it is left afterwards. No error if it does not exist. */
  delete(id: string): Promise<void>;
  /** What exists, also what an earlier process of ours started. A sandbox whose process is gone is "stopped". */
  list(): Promise<SandboxStatus[]>;
  /** Its process, whether or not it still lives, until it is deleted: it ends as the program does, with the same code. */
  process(id: string): Promise<ProcessIdentity | undefined>;
  /** Whether its process lives, by pid and start time, without asking the runtime. Cheap enough for every second. */
  alive(id: string): Promise<boolean>;
}
