import { type ChildProcess, spawn } from "node:child_process";
import { type Logger } from "@substrate/lib/log.ts";
import { type ToAtelet, readToSupervisor } from "./messages.ts";

/** Unanswered pings (one a second) after which the atelet counts as hung; more until its first answer. */
const hungAfter = { starting: 30, running: 10 } as const;
/** Up to this many it counts as answering. */
const answeringWithin = 3;
const firstBackOffMs = 100;
const longestBackOffMs = 10_000;
/** An atelet that lived this long has started well: the next back-off begins anew. */
const longLifeMs = 60_000;

export interface AteletProcessOptions {
  /** Script and arguments for this Node. */
  argv: readonly string[];
  /** Stays open in the atelet, so that the node folder is locked as long as either of us lives. */
  lockFd: number;
  /** What a newly started atelet is told first. */
  greetings: () => ToAtelet[];
  onAnnounce: (runtime: string) => void;
  log: Logger;
}

/** The atelet as a child process: started again whenever it ends or hangs. `tick` drives it, once a second. */
export class AteletProcess {
  readonly #options: AteletProcessOptions;
  readonly #log: Logger;
  #child: ChildProcess | undefined;
  #unanswered = 0;
  #count = 0;
  #hasAnswered = false;
  #startedMs = 0;
  #backOffMs = firstBackOffMs;
  #restart: NodeJS.Timeout | undefined;
  #stopping = false;
  #ended = Promise.withResolvers<undefined>();

  constructor(options: AteletProcessOptions) {
    this.#options = options;
    this.#log = options.log;
  }

  /** Pids that Node waits for. */
  get pids(): ReadonlySet<number> {
    const pid = this.#child?.pid;
    return new Set(pid === undefined ? [] : [pid]);
  }

  /** Whether its event loop has answered within the last seconds. */
  get isAnswering(): boolean {
    return this.#child !== undefined && this.#hasAnswered && this.#unanswered <= answeringWithin;
  }

  start(): void {
    const child = spawn(process.execPath, this.#options.argv, {
      stdio: ["ignore", "inherit", "inherit", "ipc", this.#options.lockFd],
      // a session of its own: Ctrl-C at a terminal reaches only the supervisor, which ends the atelet in order
      detached: true,
    });
    this.#child = child;
    this.#unanswered = 0;
    this.#hasAnswered = false;
    this.#startedMs = performance.now();
    child.on("message", (raw) => {
      const message = readToSupervisor(raw);
      if (message?.type === "pong") this.#answered(message.count);
      if (message?.type === "announce") this.#options.onAnnounce(message.runtime);
    });
    child.on("error", (error) => {
      this.#log.error("the atelet cannot be started or reached", { error, pid: child.pid });
      if (child.pid === undefined) this.#gone(null, null);
    });
    child.on("exit", (code, signal) => {
      this.#gone(code, signal);
    });
    for (const greeting of this.#options.greetings()) this.send(greeting);
  }

  send(message: ToAtelet): void {
    // an error here is the broken channel of a dying child: its exit event says the rest
    if (this.#child?.connected === true) this.#child.send(message, () => undefined);
  }

  /** Pings, and kills an atelet that has left too many pings unanswered. */
  tick(): void {
    if (this.#child === undefined || this.#stopping) return;
    const limit = this.#hasAnswered ? hungAfter.running : hungAfter.starting;
    if (this.#unanswered >= limit) {
      this.#log.error("the atelet hangs: killing it", { pid: this.#child.pid, unansweredPings: this.#unanswered });
      this.#child.kill("SIGKILL");
      return;
    }
    this.#unanswered += 1;
    this.#count += 1;
    this.send({ type: "ping", count: this.#count });
  }

  /** Passes SIGTERM on and starts no new one. Resolves when it has ended. */
  async stop(): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#restart);
    if (this.#child === undefined) return;
    this.#child.kill("SIGTERM");
    await this.#ended.promise;
  }

  #answered(count: number): void {
    // an old answer says nothing about now
    if (count !== this.#count) return;
    this.#unanswered = 0;
    this.#hasAnswered = true;
  }

  #gone(code: number | null, signal: NodeJS.Signals | null): void {
    this.#child = undefined;
    if (this.#stopping) {
      this.#ended.resolve(undefined);
      return;
    }
    if (performance.now() - this.#startedMs > longLifeMs) this.#backOffMs = firstBackOffMs;
    const delayMs = this.#backOffMs;
    this.#backOffMs = Math.min(delayMs * 2, longestBackOffMs);
    this.#log.error("the atelet ended; starting it again", { code, signal, delayMs });
    this.#restart = setTimeout(() => {
      this.start();
    }, delayMs);
  }
}
