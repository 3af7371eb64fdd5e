import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { setTimeout as delay } from "node:timers/promises";

import { SubstrateError, type ErrorCode } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";

import {
  type ExecOptions,
  NotStartedError,
  type ProcessIdentity,
  type RestoreOptions,
  type SandboxCapabilities,
  type SandboxExec,
  type SandboxRuntime,
  type SandboxSpec,
  type SandboxStatus,
} from "../sandbox.ts";
import { writeBundle } from "./bundle.ts";
import { Children } from "./children.ts";
import { type RunscOptions, runsc, type SandboxStdio } from "./command.ts";
import { SandboxControl } from "./control.ts";
import { Execs } from "./execs.ts";
import { createImage, imageFiles, imageSize, removeImage } from "./image.ts";
import { seesMount } from "./mount-view.ts";
import { findProcesses, findRunsc, isAlive, kill, waitGone, writesTo } from "./process.ts";
import { startFailure, withoutSteps } from "./start-failure.ts";
import { SandboxStates } from "./state.ts";
import { unmountAll } from "./unmount.ts";

export interface GvisorRuntimeOptions {
  runscPath: string;
  /** Absolute; holds runsc's state. At most 60 characters: a socket's path in it may have 107. */
  rootDir: string;
  log: Logger;
}

const maxRootDirLength = 60;

/** Milliseconds that a command may take; those that move memory get the time of a slow disk. */
const timeouts = {
  version: 5_000,
  start: 30_000,
  pause: 10_000,
  checkpoint: 120_000,
  restore: 60_000,
  /** 1 GiB at 10 MB/s. */
  load: 120_000,
  delete: 20_000,
  /** For the processes of a killed sandbox to be gone. */
  gone: 10_000,
} as const;

const LOOK_WRITTEN_MS = 50;

/**
 * Builds of which the restore into a created sandbox gives it host name, environment and output
 * (local/src/tools/runsc-source.ts). Others keep those of the creation, for which nobody is known.
 */
const warmBuild = /-substrate\.([2-9]|\d{2,})$/;

/** gVisor's runsc (systrap) as a sandbox class. One object per atelet; it adopts what an earlier one left. */
export class GvisorRuntime implements SandboxRuntime {
  readonly #runscPath: string;
  readonly #children = new Children();
  readonly #control = new SandboxControl();
  readonly #root: string;
  readonly #base: string;
  readonly #records: string;
  readonly #logs: string;
  readonly #execDir: string;
  readonly #execs: Execs;
  readonly #log: Logger;
  readonly #states: SandboxStates;
  /** runsc commands that have not ended, by sandbox. */
  readonly #commands = new Map<string, Set<Promise<string>>>();
  #capabilities: Promise<SandboxCapabilities> | undefined;

  constructor(options: GvisorRuntimeOptions) {
    const { rootDir } = options;
    if (!rootDir.startsWith("/") || rootDir.length > maxRootDirLength) {
      throw new SubstrateError(
        "INVALID",
        `the sandboxes' folder ${rootDir} must be absolute and have at most ${maxRootDirLength} characters: choose a shorter one`,
      );
    }
    this.#runscPath = options.runscPath;
    this.#base = rootDir;
    this.#root = join(rootDir, "s");
    this.#records = join(rootDir, "r");
    this.#logs = join(rootDir, "l");
    this.#execDir = join(rootDir, "x");
    this.#log = options.log;
    this.#states = new SandboxStates(this.#root, this.#records);
    this.#execs = new Execs({
      runscPath: options.runscPath,
      flags: this.#flags(),
      root: this.#root,
      dir: this.#execDir,
      run: (id, subcommand, timeoutMs) => this.#runsc(id, subcommand, { timeoutMs }),
      alive: (id) => this.alive(id),
      log: options.log,
    });
  }

  /**
   * Call once before anything else: makes the folders, lets commands of an earlier atelet come to their end and kills
   * processes that belong to no sandbox. Afterwards `list` is the truth.
   */
  async start(): Promise<void> {
    await rm(this.#execDir, { recursive: true, force: true });
    for (const dir of this.#dirs()) await mkdir(dir, { recursive: true, mode: 0o700 });
    await this.#execs.endLeft();
    const commands = (await findRunsc(this.#root)).filter(({ permanent }) => !permanent);
    const stuck = await waitGone(
      commands.map((command) => command.process),
      timeouts.start,
    );
    stuck.forEach(kill);
    const ids = new Set(await this.#states.ids());
    await this.#waitWritten([...ids]);
    const strays = (await findRunsc(this.#root)).filter(({ id }) => !ids.has(id));
    if (strays.length > 0) this.#log.warn("killing processes of half-made sandboxes", { strays });
    for (const stray of strays) kill(stray.process);
    await waitGone(
      strays.map((stray) => stray.process),
      timeouts.gone,
    );
    await this.#removeUnowned(ids);
  }

  /** What an earlier atelet asked them to save is written to the end: within their own memory limits it might not fit. */
  async #waitWritten(ids: readonly string[]): Promise<void> {
    const endMs = performance.now() + timeouts.start;
    for (const id of ids) {
      const { sandbox } = await this.#states.known(id);
      while (sandbox !== undefined && performance.now() < endMs && (await writesTo(sandbox.pid, imageFiles))) {
        await delay(LOOK_WRITTEN_MS);
      }
    }
  }

  /** Files that a command or an atelet left which was cut off: of sandboxes that are gone, or never finished. */
  async #removeUnowned(ids: ReadonlySet<string>): Promise<void> {
    for (const dir of [this.#root, this.#records, this.#logs]) {
      for (const name of await readdir(dir)) {
        const id = /[0-9a-f]{32}/.exec(name)?.[0];
        if (id !== undefined && (!ids.has(id) || name.endsWith(".new"))) await rm(join(dir, name), { force: true });
      }
    }
  }

  /** Last shutdown: removes the folders and the mount that runsc keeps in them. No sandbox may be left. */
  async destroy(): Promise<void> {
    await unmountAll(join(this.#root, "null-netns"));
    for (const dir of this.#dirs()) await rm(dir, { recursive: true, force: true });
  }

  #dirs(): string[] {
    return [this.#root, this.#records, this.#logs, this.#execDir];
  }

  async exec(id: string, options: ExecOptions): Promise<SandboxExec> {
    assertId(id);
    return this.#execs.start(id, options);
  }

  capabilities(): Promise<SandboxCapabilities> {
    this.#capabilities ??= this.#readVersion();
    return this.#capabilities;
  }

  async #readVersion(): Promise<SandboxCapabilities> {
    const text = await runsc(this.#children, this.#runscPath, "/dev/null", [], ["--version"], {
      timeoutMs: timeouts.version,
    });
    let version = /^runsc version (\S+)/.exec(text)?.[1] ?? "";
    if (version === "" || version === "VERSION_MISSING") {
      // an unstamped build can't tell itself from another: take its content
      const hash = createHash("sha256");
      await pipeline(createReadStream(this.#runscPath), hash);
      version = `sha256:${hash.digest("hex").slice(0, 16)}`;
    }
    return { backgroundRestore: true, warmRestore: warmBuild.test(version), runtime: `runsc/${version}` };
  }

  async run(spec: SandboxSpec): Promise<void> {
    await this.#assertNew(spec.id);
    try {
      await writeBundle(spec, { cpuQuota: true });
      await this.#startWith(spec, ["run", "--detach", `--bundle=${spec.bundleDir}`, spec.id], {
        timeoutMs: timeouts.start,
        flags: rootfsTarFlags(spec),
      });
    } catch (error) {
      await this.#cleanUp(spec.id);
      const said = error instanceof Error ? error.message : String(error);
      const why = startFailure(spec, said);
      if (why === undefined) {
        const message = `${spec.args.join(" ")} did not start: ${withoutSteps(said)}`;
        throw new SubstrateError("PROGRAM_EXITED", message, { cause: error });
      }
      this.#log.warn("a program could not be started", { sandbox: spec.id, program: spec.args[0], error });
      throw new NotStartedError("PROGRAM_EXITED", why, { cause: error });
    }
  }

  async create(spec: SandboxSpec): Promise<void> {
    await this.#assertNew(spec.id);
    try {
      await writeBundle(spec, { cpuQuota: false });
      await this.#startWith(spec, ["create", `--bundle=${spec.bundleDir}`, spec.id], { timeoutMs: timeouts.start });
    } catch (error) {
      await this.#cleanUp(spec.id);
      throw this.#failure("INTERNAL", `sandbox ${spec.id} could not be created`, error);
    }
  }

  async pause(id: string): Promise<void> {
    await this.#command(id, ["pause", id], timeouts.pause);
  }

  async resume(id: string): Promise<void> {
    await this.#command(id, ["resume", id], timeouts.pause);
  }

  async checkpoint(id: string, imageDir: string, options: { direct: boolean }): Promise<number> {
    assertId(id);
    try {
      const { warmRestore: isOurs } = await this.capabilities();
      if (isOurs) await this.#save(id, imageDir, options);
      else {
        const direct = options.direct ? ["--direct"] : [];
        const command = ["checkpoint", "--leave-running", ...direct, `--image-path=${imageDir}`, id];
        await this.#runsc(id, command, { timeoutMs: timeouts.checkpoint });
      }
      return await imageSize(imageDir);
    } catch (error) {
      await removeImage(imageDir);
      const what = (await this.alive(id))
        ? `sandbox ${id}: no image written to ${imageDir}, the sandbox is still there`
        : `sandbox ${id} died during the checkpoint (out of memory, if its limit was tight)`;
      throw this.#failure("CHECKPOINT_FAILED", what, error);
    }
  }

  /**
   * What `runsc checkpoint --leave-running` asks the sandbox. Its argument is gVisor's own business (control.SaveOpts), so
   * only builds of which the source is known are asked.
   */
  async #save(id: string, imageDir: string, options: { direct: boolean }): Promise<void> {
    const files = await createImage(imageDir, options);
    try {
      await this.#control.call(this.#states.socket(id), {
        method: "containerManager.Checkpoint",
        argument: { metadata: { compression: "none" }, have_pages_file: true, Resume: true },
        files: files.map(({ fd }) => fd),
        timeoutMs: timeouts.checkpoint,
      });
    } finally {
      for (const file of files) await file.close();
    }
  }

  async saveRootfs(id: string, file: string): Promise<void> {
    assertId(id);
    try {
      await this.#runsc(id, ["tar", "rootfs-upper", `--file=${file}`, id], { timeoutMs: timeouts.checkpoint });
    } catch (error) {
      await rm(file, { force: true });
      throw this.#failure("CHECKPOINT_FAILED", `sandbox ${id}: its root file system was not written to ${file}`, error);
    }
  }

  async signal(id: string, signal: "SIGTERM"): Promise<void> {
    assertId(id);
    try {
      await this.#runsc(id, ["kill", id, signal], { timeoutMs: timeouts.pause });
    } catch (error) {
      if (await this.alive(id)) throw this.#failure("INTERNAL", `sandbox ${id}: ${signal} was not delivered`, error);
    }
  }

  async restore(spec: SandboxSpec, options: RestoreOptions): Promise<void> {
    const { imageDir, created = false } = options;
    if (!created) await this.#assertNew(spec.id);
    try {
      await Promise.all([
        imageSize(imageDir),
        writeBundle(spec, { cpuQuota: false }),
        ...(created ? [this.#assertSeen(spec)] : []),
      ]);
      await this.#startWith(
        spec,
        [
          "restore",
          "--detach",
          "--background",
          ...(options.direct ? ["--direct"] : []),
          `--bundle=${spec.bundleDir}`,
          `--image-path=${imageDir}`,
          spec.id,
        ],
        {
          timeoutMs: timeouts.restore,
          flags: [`--allow-live-tcp-migration=${String(options.keepConnections)}`, ...rootfsTarFlags(spec)],
        },
      );
    } catch (error) {
      await this.#cleanUp(spec.id);
      throw this.#failure("RESTORE_FAILED", `sandbox ${spec.id}: cannot restore the image in ${imageDir}`, error);
    }
  }

  async waitRestored(id: string): Promise<void> {
    assertId(id);
    try {
      // asked a while after the restore: it may have been deleted since
      if (!(await this.alive(id))) throw new Error("it has ended");
      // what `runsc wait --restore` asks
      const call = { method: "containerManager.WaitRestore", argument: null, timeoutMs: timeouts.load };
      await this.#control.call(this.#states.socket(id), call);
    } catch (error) {
      throw this.#failure("RESTORE_FAILED", `sandbox ${id}: its memory was not loaded completely`, error);
    }
  }

  async delete(id: string): Promise<void> {
    assertId(id);
    const { sandbox, gofer } = await this.#states.known(id);
    const recorded = [sandbox, gofer].filter((process) => process !== undefined);
    // killed here, whatever state runsc is in
    recorded.forEach(kill);
    const left = await waitGone(recorded, timeouts.gone);
    // of what was whole there are only files left: a process of runsc that removes them costs 30 ms of a core
    const removed = sandbox !== undefined && gofer !== undefined ? undefined : await this.#deleteByRunsc(id);
    const survivors = [...left, ...(removed?.left ?? [])];
    if (survivors.length > 0) {
      const pids = survivors.map(({ pid }) => pid).join(", ");
      throw new SubstrateError("INTERNAL", `sandbox ${id}: processes ${pids} survive SIGKILL; delete it again later`, {
        cause: removed?.refused,
      });
    }
    // a command that was under way for it ends with it, and writes why into the log
    await Promise.race([
      Promise.allSettled([...(this.#commands.get(id) ?? [])]),
      delay(timeouts.gone, undefined, { ref: false }),
    ]);
    await this.#states.forget(id);
    await rm(this.#logPath(id), { force: true });
  }

  /** One that was never whole, or of which nothing is recorded: runsc may know more. */
  async #deleteByRunsc(id: string): Promise<{ left: readonly ProcessIdentity[]; refused?: unknown }> {
    try {
      await this.#runsc(id, ["delete", "--force", id], { timeoutMs: timeouts.delete });
      return { left: [] };
    } catch (refused) {
      this.#log.warn("runsc could not delete a sandbox; removing what is left of it", { sandbox: id, error: refused });
      const found = await findProcesses(id);
      found.forEach(kill);
      return { left: await waitGone(found, timeouts.gone), refused };
    }
  }

  async list(): Promise<SandboxStatus[]> {
    const ids = await this.#states.ids();
    const found = await Promise.all(ids.map((id) => this.#status(id)));
    return found.filter((status) => status !== undefined);
  }

  async #status(id: string): Promise<SandboxStatus | undefined> {
    const state = await this.#states.read(id);
    if (state === undefined) return undefined;
    const status = (await this.alive(id)) ? state.status : "stopped";
    return { id, status, pid: state.sandbox?.pid ?? 0 };
  }

  async process(id: string): Promise<ProcessIdentity | undefined> {
    assertId(id);
    return (await this.#states.known(id)).sandbox;
  }

  async alive(id: string): Promise<boolean> {
    assertId(id);
    const { sandbox } = await this.#states.known(id);
    return sandbox !== undefined && isAlive(sandbox);
  }

  /** Host process of the sandbox and of its file server, for accounting; 0 if there is none. */
  async pids(id: string): Promise<{ sandbox: number; gofer: number }> {
    assertId(id);
    const { sandbox, gofer } = await this.#states.known(id);
    return { sandbox: sandbox?.pid ?? 0, gofer: gofer?.pid ?? 0 };
  }

  async #assertNew(id: string): Promise<void> {
    assertId(id);
    if ((await this.#states.read(id)) !== undefined) {
      throw new SubstrateError("INTERNAL", `sandbox ${id} exists already: delete it before it is started again`);
    }
    await rm(this.#logPath(id), { force: true });
  }

  /** Opens the program's output files and starts a sandbox that owns them. */
  async #startWith(spec: SandboxSpec, subcommand: readonly string[], options: RunscOptions): Promise<void> {
    const stdout = await open(spec.stdoutPath, "a", 0o600);
    try {
      const stderr = await open(spec.stderrPath, "a", 0o600);
      try {
        const stdio: SandboxStdio = { stdoutFd: stdout.fd, stderrFd: stderr.fd };
        await this.#runsc(spec.id, subcommand, { ...options, cwd: spec.bundleDir, stdio });
      } finally {
        await stderr.close();
      }
    } finally {
      await stdout.close();
    }
    await this.#states.record(spec.id);
  }

  /** A program that doesn't get its volumes would write into the folders below, silently. */
  async #assertSeen({ id, volumes }: SandboxSpec): Promise<void> {
    const { gofer } = await this.#states.known(id);
    if (gofer === undefined) throw new Error("its file server has ended");
    for (const { source } of volumes) {
      if (await seesMount(gofer.pid, source)) continue;
      throw new Error(`it does not see what is mounted at ${source}`);
    }
  }

  async #command(id: string, subcommand: readonly string[], timeoutMs: number): Promise<void> {
    assertId(id);
    try {
      await this.#runsc(id, subcommand, { timeoutMs });
    } catch (error) {
      const fate = (await this.alive(id)) ? "" : " (its process is gone)";
      throw this.#failure("INTERNAL", `sandbox ${id}${fate}`, error);
    }
  }

  async #runsc(id: string, subcommand: readonly string[], options: RunscOptions): Promise<string> {
    const command = runsc(this.#children, this.#runscPath, this.#logPath(id), this.#flags(), subcommand, options);
    const underWay = this.#commands.get(id) ?? new Set();
    this.#commands.set(id, underWay.add(command));
    try {
      return await command;
    } finally {
      underWay.delete(command);
      if (underWay.size === 0) this.#commands.delete(id);
    }
  }

  #flags(): string[] {
    return [`--root=${this.#root}`, "--overlay2=root:memory", "--platform=systrap", "--network=sandbox"];
  }

  #logPath(id: string): string {
    return join(this.#logs, `${id}.log`);
  }

  /** After a failed start; a second failure is logged, the first one is what the caller must see. */
  async #cleanUp(id: string): Promise<void> {
    try {
      await this.delete(id);
    } catch (error) {
      this.#log.error("cannot remove a sandbox that failed to start", { sandbox: id, error });
    }
  }

  #failure(code: ErrorCode, what: string, error: unknown): SubstrateError {
    const why = error instanceof Error ? error.message : String(error);
    return new SubstrateError(code, `${what}: ${why}`, { cause: error });
  }
}

/** runsc heeds the annotation of a rootfs tar only where its caller says so. */
function rootfsTarFlags(spec: SandboxSpec): string[] {
  return spec.rootfsTar === undefined ? [] : ["--allow-rootfs-tar-annotation"];
}

/** runsc takes ids by prefix: only ids of one fixed length can't name each other. */
function assertId(id: string): void {
  if (!/^[0-9a-f]{32}$/.test(id)) throw new SubstrateError("INVALID", `sandbox id "${id}" is not 32 hex digits`);
}
