import { setTimeout as sleep } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type SandboxRuntime } from "../sandbox/sandbox.ts";
import { type Descriptors } from "./descriptors.ts";
import { type ExecOutput, type ExecRequest, ExecSession } from "./session.ts";

/** What an exec needs of its actor. */
export interface ExecActor {
  /** Of its sandbox. */
  readonly sandboxId: string;
  /** <namespace>/<name> */
  readonly name: string;
  readonly record: { readonly actor: { readonly uid: string } };
  resume(): Promise<void>;
  route(): { state: string };
  noteActivity(nowMs: number): void;
}

/** The person's side of a session. */
export interface ExecClient extends ExecOutput {
  /** The program runs: from now on it takes input. */
  begun(session: ExecSession): void;
}

interface Open {
  session: ExecSession | undefined;
  /** Why it was ended from outside. */
  cut: string | undefined;
  lastMs: number;
  ended: Promise<unknown>;
}

/** Of one actor, and of a whole node: each is a process of runsc and some descriptors. */
const sessionLimits = { actor: 16, node: 128 } as const;
/** The kubelet's --streaming-connection-idle-timeout. */
const idleMs = 4 * 60 * 60_000;
const idleCheckMs = 60_000;
/** A suspend may begin between the end of a wake and the start of the program. */
const wakeTries = 3;

/** All programs that people run inside actors now. Each counts as an open request of its actor. */
export class ExecSessions {
  readonly #runtime: Pick<SandboxRuntime, "exec">;
  readonly #descriptors: Descriptors;
  readonly #log: Logger;
  readonly #open = new Map<string, Set<Open>>();

  constructor(runtime: Pick<SandboxRuntime, "exec">, descriptors: Descriptors, log: Logger) {
    this.#runtime = runtime;
    this.#descriptors = descriptors;
    this.#log = log;
  }

  count(uid: string): number {
    return this.#open.get(uid)?.size ?? 0;
  }

  /**
   * Wakes the actor, runs a program in it and resolves with its exit code. When `signal` aborts, the program and what
   * it started are killed. Throws TOO_MANY_SESSIONS, INVALID for a program that is not there, PROGRAM_EXITED when the
   * session was cut, and what a wake throws.
   */
  async run(actor: ExecActor, request: ExecRequest, client: ExecClient, signal: AbortSignal): Promise<number> {
    const { uid } = actor.record.actor;
    await wake(actor);
    const { promise: ended, resolve } = Promise.withResolvers<undefined>();
    // in the same turn as the look at its state: a suspend that begins later finds it
    const open: Open = { session: undefined, cut: undefined, lastMs: performance.now(), ended };
    this.#add(actor.name, uid, open);
    actor.noteActivity(Date.now());
    const watching = new AbortController();
    try {
      const session = await ExecSession.start(this.#runtime, this.#descriptors, actor.sandboxId, request);
      open.session = session;
      const kill = (): void => void this.#kill(actor, session);
      if (signal.aborted || open.cut !== undefined) kill();
      else signal.addEventListener("abort", kill, { once: true });
      void this.#watch(actor, open, watching.signal);
      const seen = (): void => {
        open.lastMs = performance.now();
      };
      client.begun(session);
      const code = await session.run({
        stdout: (chunk) => (seen(), client.stdout(chunk)),
        stderr: (chunk) => (seen(), client.stderr(chunk)),
      });
      if (open.cut !== undefined) throw new SubstrateError("PROGRAM_EXITED", open.cut);
      return code;
    } catch (error) {
      if (open.session !== undefined) await this.#kill(actor, open.session);
      throw error;
    } finally {
      watching.abort();
      actor.noteActivity(Date.now());
      this.#remove(uid, open);
      resolve(undefined);
    }
  }

  /** Input counts against idleness as output does. */
  touch(uid: string): void {
    for (const open of this.#open.get(uid) ?? []) open.lastMs = performance.now();
  }

  /** Waits until no session of the actor is open. @returns how many still are when the time is over. */
  async drain(uid: string, timeoutMs: number): Promise<number> {
    const over = new AbortController();
    const timeout = sleep(timeoutMs, "timeout", { signal: over.signal }).catch(() => "timeout");
    while (this.count(uid) > 0) {
      const ended = Promise.all([...(this.#open.get(uid) ?? [])].map((open) => open.ended));
      if ((await Promise.race([ended, timeout])) === "timeout") break;
    }
    over.abort();
    return this.count(uid);
  }

  /** Ends all sessions of an actor; resolves when their programs are gone. */
  async cut(uid: string, why: string): Promise<void> {
    const all = [...(this.#open.get(uid) ?? [])];
    for (const open of all) open.cut = why;
    await Promise.all(all.map(async (open) => open.session?.kill()));
    await Promise.all(all.map((open) => open.ended));
  }

  #add(name: string, uid: string, open: Open): void {
    const total = [...this.#open.values()].reduce((sum, { size }) => sum + size, 0);
    const own = this.#open.get(uid) ?? new Set();
    if (own.size >= sessionLimits.actor || total >= sessionLimits.node) {
      const what =
        own.size >= sessionLimits.actor
          ? `actor ${name} has ${own.size} sessions of exec open, the most that it may have`
          : `the node of actor ${name} has ${total} sessions of exec open, the most that it may have`;
      throw new SubstrateError("TOO_MANY_SESSIONS", `${what}: end one of them`);
    }
    this.#open.set(uid, own.add(open));
  }

  #remove(uid: string, open: Open): void {
    const own = this.#open.get(uid);
    own?.delete(open);
    if (own?.size === 0) this.#open.delete(uid);
  }

  async #kill(actor: ExecActor, session: ExecSession): Promise<void> {
    try {
      await session.kill();
    } catch (error) {
      this.#log.warn("the program of a session that is over could not be killed", { actor: actor.name, error });
    }
  }

  async #watch(actor: ExecActor, open: Open, signal: AbortSignal): Promise<void> {
    for (;;) {
      await sleep(idleCheckMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      if (performance.now() - open.lastMs < idleMs || open.session === undefined) continue;
      open.cut = `the session was ended: nothing was typed or printed for ${idleMs / 3_600_000} hours`;
      await this.#kill(actor, open.session);
    }
  }
}

/** When it resolves the actor runs, and runs in this very turn. */
async function wake(actor: ExecActor): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    await actor.resume();
    if (actor.route().state === "RUNNING") return;
    if (tries === wakeTries) {
      const message = `actor ${actor.name} is being suspended again and again`;
      throw new SubstrateError("OPERATION_IN_PROGRESS", message, { retryAfterMs: 1000 });
    }
  }
}
