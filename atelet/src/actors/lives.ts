import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorRecord } from "./record.ts";
import { LONG_LIFE_MS, RestartBackOff } from "./restart-back-off.ts";

/** So many short lives in a row from one source are no accident. */
const LOOP_AFTER = 3;

/** Failed starts that lie in the program or in what it is started from. No room, no store, no registry are none. */
export const programsFault: ReadonlySet<string> = new Set(["RESTORE_FAILED", "PROGRAM_EXITED", "NOT_READY"]);

export interface LivesOptions {
  record: ActorRecord;
  /** <namespace>/<name> */
  name: string;
  /** Called when a pause between two tries is over. */
  over: () => void;
  /** Called when a crash loop begins. */
  looping: () => void;
}

/**
 * How one actor's lives began and ended, and so whether it may be started again now: at growing pauses after failures,
 * and after three short lives from one source not before a person chooses another one (docs/adr/0013-crash-loop.md).
 */
export class Lives {
  readonly #record: ActorRecord;
  readonly #name: string;
  readonly #backOff: RestartBackOff;
  readonly #looping: () => void;

  constructor({ record, name, over, looping }: LivesOptions) {
    this.#record = record;
    this.#name = name;
    this.#backOff = new RestartBackOff(over);
    this.#looping = looping;
  }

  /** Why nothing may start it now; with a time to try again, unless that would not help. */
  refusal(): SubstrateError | undefined {
    if (this.#record.crashLoop !== undefined) return new SubstrateError("CRASH_LOOP", this.#record.crashLoop.message);
    const waitMs = this.#backOff.waitMs();
    if (waitMs === 0) return undefined;
    return new SubstrateError("RESTORE_FAILED", this.#backOff.lastFailure, { retryAfterMs: waitMs });
  }

  /** A person or another revision makes a new beginning. */
  forgive(): void {
    this.#record.crashLoop = undefined;
    this.#record.shortLives = undefined;
    this.#backOff.over();
  }

  /** It was put to sleep: that is no short life, however soon. */
  slept(): void {
    this.#record.shortLives = undefined;
  }

  startFailed({ code, message }: SubstrateError, fromGeneration: number): void {
    if (!programsFault.has(code)) return;
    this.#backOff.failed(message, undefined);
    this.#short(message, fromGeneration);
  }

  /** @param byItself false when its node was at fault, which says nothing of the program. */
  crashed(message: string, life: { fromGeneration: number; startedAtMs: number } | undefined, byItself: boolean): void {
    this.#backOff.failed(`actor ${this.#name} crashed: ${message}`, life?.startedAtMs);
    if (life === undefined || !byItself) return;
    if (Date.now() - life.startedAtMs > LONG_LIFE_MS) this.#record.shortLives = undefined;
    else this.#short(message, life.fromGeneration);
  }

  #short(message: string, generation: number): void {
    const record = this.#record;
    const { revision } = record.program;
    const before = record.shortLives;
    const same = before?.generation === generation && before.revision === revision;
    const count = same ? before.count + 1 : 1;
    record.shortLives = { generation, revision, count };
    if (count < LOOP_AFTER || record.crashLoop !== undefined) return;
    this.#looping();
    const source = generation === 0 ? "a cold start" : `generation ${generation}`;
    const { name } = record.actor;
    record.crashLoop = {
      generation,
      message:
        `actor ${this.#name} ended ${count} times in a row within a minute of its start from ${source}, the last time ` +
        `because: ${message}. It is not started by itself any more: go back with "kubectl ate resume ${name} --from N" ` +
        `(N: a generation that "kubectl ate describe ${name}" shows), or start it cold with ` +
        `"kubectl ate resume ${name} --boot"`,
      sinceMs: Date.now(),
    };
  }
}
