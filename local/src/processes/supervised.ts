import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, existsSync, openSync, renameSync, statSync } from "node:fs";
import { once } from "node:events";
import { started } from "./started.ts";
import { identify, type ProcessIdentity, removeRecord, signalProcess, waitForEnd, writeRecord } from "./record.ts";

const FIRST_BACKOFF_MS = 250;
const MAX_BACKOFF_MS = 10_000;
/** A process that lived this long begins again with the first back-off, as a kubelet would do after ten minutes. */
const STEADY_MS = 30_000;
const KILL_WAIT_MS = 10_000;
const MAX_LOG_BYTES = 20 * 1024 * 1024;

export interface ProcessCommand {
  program: string;
  arguments: readonly string[];
  environment: NodeJS.ProcessEnv;
}

export interface SupervisedOptions {
  name: string;
  /** Asked at each start. */
  command: () => ProcessCommand;
  logFile: string;
  recordFile: string;
  /** How long SIGTERM may take before SIGKILL. */
  graceMs: number;
  say: (line: string) => void;
  /**
   * Runs after the program was spawned and before it counts as started; a throw kills it. With it, the program's
   * stdin is a pipe. `signal` gives it up.
   */
  prepare?: (child: ChildProcess, signal: AbortSignal) => Promise<void>;
  /** Which process gets the signals; default the spawned one. */
  target?: (spawned: ProcessIdentity) => ProcessIdentity | undefined;
  /** Whether the target notices a signal other than SIGKILL; if not, `stop` kills at once. Default always. */
  heeds?: (target: ProcessIdentity) => boolean;
  /** Runs after each start, the later ones too. */
  onStarted?: () => void;
  /** Runs after the process is gone, before it is started again. */
  cleanup?: () => Promise<void>;
}

/** A process of the cluster that is started again, with back-off, whenever it ends without having been asked to. */
export class SupervisedProcess {
  readonly #options: SupervisedOptions;
  #current: ProcessIdentity | undefined;
  #wanted = false;
  #backoffMs = FIRST_BACKOFF_MS;
  #timer: NodeJS.Timeout | undefined;
  #preparing = new AbortController();
  #starting: Promise<void> = Promise.resolve();
  #ended: Promise<unknown> = Promise.resolve();

  constructor(options: SupervisedOptions) {
    this.#options = options;
  }

  get name(): string {
    return this.#options.name;
  }

  /** The process that gets signals; undefined while none runs. */
  get identity(): ProcessIdentity | undefined {
    const spawned = this.#current;
    return spawned === undefined ? undefined : (this.#options.target ?? ((self) => self))(spawned);
  }

  /** Starts it; later ends are followed by new starts. @throws if the first start fails. */
  async start(): Promise<void> {
    this.#wanted = true;
    clearTimeout(this.#timer);
    if (this.#current !== undefined) return;
    this.#starting = this.#spawn();
    await this.#starting;
  }

  /** Ends it, by SIGKILL after the grace time, and leaves it ended. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    this.#wanted = false;
    clearTimeout(this.#timer);
    this.#preparing.abort(new Error(`${this.name} was stopped while it was started`));
    // a start that fails has said so and has nothing to stop
    await Promise.allSettled([this.#starting]);
    const spawned = this.#current;
    if (spawned !== undefined) {
      const target = this.identity;
      const heeds = target === undefined || (this.#options.heeds?.(target) ?? true);
      signalProcess(heeds ? (target ?? spawned) : spawned, heeds ? signal : "SIGKILL");
      if (!(await waitForEnd(spawned, this.#options.graceMs))) {
        this.#options.say(`${this.name} did not end within ${this.#options.graceMs / 1000} s: killing it`);
        signalProcess(spawned, "SIGKILL");
        if (!(await waitForEnd(spawned, KILL_WAIT_MS)))
          throw new Error(`${this.name} (pid ${spawned.pid}) survived SIGKILL`);
      }
    }
    await this.#ended;
  }

  /** Sends the signal and does nothing else: if it ends, it is started again. */
  signal(signal: NodeJS.Signals): void {
    const target = this.identity;
    if (target === undefined) throw new Error(`${this.name} does not run`);
    signalProcess(target, signal);
  }

  async #spawn(): Promise<void> {
    const { command, logFile, recordFile, prepare } = this.#options;
    rotate(logFile);
    const { program, arguments: args, environment } = command();
    const log = openSync(logFile, "a", 0o600);
    const startedMs = performance.now();
    const preparing = new AbortController();
    this.#preparing = preparing;
    const child = await started(program, () =>
      spawn(program, args, {
        env: environment,
        stdio: [prepare === undefined ? "ignore" : "pipe", log, log],
        // an own session: Ctrl-C in the terminal reaches this process alone, which then stops the parts in order
        detached: true,
      }),
    ).finally(() => {
      closeSync(log);
    });
    const identity = child.pid === undefined ? undefined : identify(child.pid);
    if (identity === undefined) throw new Error(`${this.name} ended at once; see ${logFile}`);
    this.#current = identity;
    this.#ended = once(child, "exit").then(([code, signal]: unknown[]) =>
      this.#onEnd(String(code ?? signal), performance.now() - startedMs),
    );
    writeRecord(recordFile, identity);
    try {
      await prepare?.(child, preparing.signal);
    } catch (error) {
      signalProcess(identity, "SIGKILL");
      throw error;
    }
    this.#options.onStarted?.();
  }

  async #onEnd(how: string, livedMs: number): Promise<void> {
    this.#current = undefined;
    removeRecord(this.#options.recordFile);
    try {
      await this.#options.cleanup?.();
    } catch (error) {
      this.#options.say(
        `cleaning up after ${this.name} failed: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
    // asked again, for stop() may have been called during the cleanup
    if (this.#isWanted()) this.#startLater(`${this.name} ended (${how})`, livedMs);
  }

  #isWanted(): boolean {
    return this.#wanted;
  }

  #startLater(why: string, livedMs: number): void {
    if (livedMs > STEADY_MS) this.#backoffMs = FIRST_BACKOFF_MS;
    const delayMs = this.#backoffMs;
    this.#backoffMs = Math.min(this.#backoffMs * 2, MAX_BACKOFF_MS);
    this.#options.say(`${why}: starting it again in ${delayMs / 1000} s; its log is ${this.#options.logFile}`);
    this.#timer = setTimeout(() => {
      this.#starting = this.#spawn();
      this.#starting.catch((error: unknown) => {
        // a process that was spawned comes back by its end; one that was not needs another try
        if (this.#current === undefined && this.#isWanted()) {
          this.#startLater(`${this.name} did not start: ${error instanceof Error ? error.message : String(error)}`, 0);
        }
      });
    }, delayMs);
  }
}

/** Keeps one older log. */
function rotate(logFile: string): void {
  if (existsSync(logFile) && statSync(logFile).size > MAX_LOG_BYTES) renameSync(logFile, `${logFile}.1`);
}
