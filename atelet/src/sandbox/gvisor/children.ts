import koffi from "koffi";
import { closeSync, readSync } from "node:fs";

/** sys/wait.h */
const WNOHANG = 1;
/** spawn.h */
const POSIX_SPAWN_SETSIGDEF = 0x04;
const POSIX_SPAWN_SETSIGMASK = 0x08;
/** linux/memfd.h */
const MFD_CLOEXEC = 1;
/** glibc's on 64-bit machines; room to spare. */
const [ACTIONS_BYTES, ATTRIBUTES_BYTES, SIGNALS_BYTES] = [128, 512, 128];

export interface ChildOptions {
  /** Absolute. */
  program: string;
  args: readonly string[];
  env: Readonly<Record<string, string>>;
  /** Absolute. */
  cwd: string;
  /** Open descriptors that become its standard output and standard error; captured without. */
  output?: { stdoutFd: number; stderrFd: number };
}

export interface ChildExit {
  /** Undefined if a signal ended it. */
  exitCode: number | undefined;
  signal: number | undefined;
  /** The first bytes of what it wrote, if that was captured. */
  stdout: string;
  stderr: string;
}

export interface Child {
  pid: number;
  ended: Promise<ChildExit>;
}

interface Libc {
  spawn(
    pid: [number],
    path: string,
    actions: Buffer,
    attributes: Buffer,
    argv: (string | null)[],
    envp: (string | null)[],
  ): number;
  initActions(actions: Buffer): number;
  addOpen(actions: Buffer, fd: number, path: string, flags: number, mode: number): number;
  addDup2(actions: Buffer, fd: number, to: number): number;
  addChdir(actions: Buffer, path: string): number;
  destroyActions(actions: Buffer): number;
  initAttributes(attributes: Buffer): number;
  setFlags(attributes: Buffer, flags: number): number;
  setDefaults(attributes: Buffer, signals: Buffer): number;
  setMask(attributes: Buffer, signals: Buffer): number;
  memfd(name: string, flags: number): number;
  waitpid(pid: number, status: [number], options: number): number;
}

function loadLibc(): Libc {
  const c = koffi.load("libc.so.6");
  return {
    spawn: c.func(
      "int posix_spawn(_Out_ int *pid, const char *path, const void *actions, const void *attr, const char **argv, const char **envp)",
    ) as Libc["spawn"],
    initActions: c.func("int posix_spawn_file_actions_init(void *actions)") as Libc["initActions"],
    addOpen: c.func(
      "int posix_spawn_file_actions_addopen(void *actions, int fd, const char *path, int flags, uint32_t mode)",
    ) as Libc["addOpen"],
    addDup2: c.func("int posix_spawn_file_actions_adddup2(void *actions, int fd, int to)") as Libc["addDup2"],
    addChdir: c.func("int posix_spawn_file_actions_addchdir_np(void *actions, const char *path)") as Libc["addChdir"],
    destroyActions: c.func("int posix_spawn_file_actions_destroy(void *actions)") as Libc["destroyActions"],
    initAttributes: c.func("int posix_spawnattr_init(void *attr)") as Libc["initAttributes"],
    setFlags: c.func("int posix_spawnattr_setflags(void *attr, short flags)") as Libc["setFlags"],
    setDefaults: c.func("int posix_spawnattr_setsigdefault(void *attr, const void *set)") as Libc["setDefaults"],
    setMask: c.func("int posix_spawnattr_setsigmask(void *attr, const void *set)") as Libc["setMask"],
    memfd: c.func("int memfd_create(const char *name, uint32_t flags)") as Libc["memfd"],
    waitpid: c.func("int waitpid(int pid, _Out_ int *status, int options)") as Libc["waitpid"],
  };
}

/**
 * Starts programs by posix_spawn(3), which shares this process's memory with the new one until that runs its own
 * program. node:child_process forks: that copies the page tables of the whole atelet each time, on the event loop; with
 * 250 MiB resident it was measured at 25 ms and more, 8.6 ms of it CPU, where this takes one.
 */
export class Children {
  readonly #libc = loadLibc();
  readonly #running = new Map<number, (status: number) => void>();
  readonly #onChild = (): void => {
    this.#reap();
  };

  /** @throws what the system says if the program cannot be started. */
  start({ program, args, env, cwd, output }: ChildOptions): Child {
    const captured = output === undefined ? this.#capture() : undefined;
    try {
      const fds = output ?? captured ?? { stdoutFd: 0, stderrFd: 0 };
      const pid = this.#spawn(program, args, env, cwd, fds);
      const ended = new Promise<number>((resolve) => {
        if (this.#running.size === 0) process.on("SIGCHLD", this.#onChild);
        this.#running.set(pid, resolve);
      }).then((status) => exitOf(status, captured));
      // it may have ended before anybody listened
      this.#reap();
      return { pid, ended };
    } catch (error) {
      if (captured !== undefined) for (const fd of Object.values(captured)) closeSync(fd);
      throw error;
    }
  }

  #spawn(
    program: string,
    args: readonly string[],
    env: Readonly<Record<string, string>>,
    cwd: string,
    fds: { stdoutFd: number; stderrFd: number },
  ): number {
    const libc = this.#libc;
    const actions = Buffer.alloc(ACTIONS_BYTES);
    const attributes = Buffer.alloc(ATTRIBUTES_BYTES);
    must("posix_spawn_file_actions_init", libc.initActions(actions));
    try {
      must("posix_spawnattr_init", libc.initAttributes(attributes));
      // Node ignores SIGPIPE and its threads block signals: neither is the program's affair
      must("setflags", libc.setFlags(attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK));
      must("setsigdefault", libc.setDefaults(attributes, Buffer.alloc(SIGNALS_BYTES, 0xff)));
      must("setsigmask", libc.setMask(attributes, Buffer.alloc(SIGNALS_BYTES)));
      must("addopen", libc.addOpen(actions, 0, "/dev/null", 0, 0));
      must("adddup2", libc.addDup2(actions, fds.stdoutFd, 1));
      must("adddup2", libc.addDup2(actions, fds.stderrFd, 2));
      must("addchdir", libc.addChdir(actions, cwd));
      const pid: [number] = [0];
      const words = Object.entries(env).map(([name, value]) => `${name}=${value}`);
      must("posix_spawn", libc.spawn(pid, program, actions, attributes, [program, ...args, null], [...words, null]));
      return pid[0];
    } finally {
      libc.destroyActions(actions);
    }
  }

  /** Files in memory, not pipes: nobody has to read while the program runs. */
  #capture(): { stdoutFd: number; stderrFd: number } {
    const [stdoutFd, stderrFd] = [this.#libc.memfd("stdout", MFD_CLOEXEC), this.#libc.memfd("stderr", MFD_CLOEXEC)];
    if (stdoutFd < 0 || stderrFd < 0) throw new Error("memfd_create failed: too many open files?");
    return { stdoutFd, stderrFd };
  }

  /** Signals coalesce: one may stand for several that ended. */
  #reap(): void {
    for (const [pid, resolve] of this.#running) {
      const status: [number] = [0];
      if (this.#libc.waitpid(pid, status, WNOHANG) !== pid) continue;
      this.#running.delete(pid);
      resolve(status[0]);
    }
    if (this.#running.size === 0) process.off("SIGCHLD", this.#onChild);
  }
}

/** These return an errno. */
function must(what: string, errno: number): void {
  if (errno === 0) return;
  const name = Object.entries(koffi.os.errno).find(([, value]) => value === errno)?.[0];
  throw new Error(`${what}: ${name ?? `errno ${errno}`}`);
}

/** An error of runsc is one line: more would only fill memory. */
const CAPTURED_BYTES = 16 * 1024;

function exitOf(status: number, captured: { stdoutFd: number; stderrFd: number } | undefined): ChildExit {
  const signal = status & 0x7f;
  return {
    exitCode: signal === 0 ? (status >> 8) & 0xff : undefined,
    signal: signal === 0 ? undefined : signal,
    stdout: captured === undefined ? "" : take(captured.stdoutFd),
    stderr: captured === undefined ? "" : take(captured.stderrFd),
  };
}

function take(fd: number): string {
  try {
    const bytes = Buffer.alloc(CAPTURED_BYTES);
    return bytes.toString("utf8", 0, readSync(fd, bytes, 0, bytes.length, 0));
  } finally {
    closeSync(fd);
  }
}
