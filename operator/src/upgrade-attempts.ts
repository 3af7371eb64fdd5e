import { type ErrorCode, SubstrateError } from "@substrate/lib/errors.ts";

const firstPauseMs = 2_000;
const lastPauseMs = 600_000;
/** Tries that are this old, after their pause, are forgotten: the actor, or the wish to wake it, is gone. */
const forgetAfterMs = 3_600_000;

/** What lies in the new program, or in the actor's volumes. No room, no store, no node are none of it. */
const programsFault: ReadonlySet<ErrorCode> = new Set(["RESTORE_FAILED", "PROGRAM_EXITED", "NOT_READY"]);

interface Attempts {
  revision: string;
  failures: number;
  retryAtMs: number;
  last: SubstrateError;
}

/**
 * How often the upgrade of an actor by its wakes has failed. Each is a choice of what to start from, which a node does
 * not take for part of a crash loop, so that every request would start a broken program once more. After a restart of
 * the operator the row begins anew.
 */
export class UpgradeAttempts {
  readonly #attempts = new Map<string, Attempts>();
  readonly #now: () => number;

  /** @param now a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Why this revision is not tried now, with when it is. */
  refusal(uid: string, key: string, revision: string): SubstrateError | undefined {
    const attempts = this.#attempts.get(uid);
    if (attempts?.revision !== revision) return undefined;
    const retryAfterMs = attempts.retryAtMs - this.#now();
    if (retryAfterMs <= 0) return undefined;
    const { failures, last } = attempts;
    const message =
      `Actor ${key}: its upgrade to revision ${revision} has failed ${failures === 1 ? "once" : `${failures} times`}, the last time because: ` +
      `${last.message}. It is tried again in ${Math.ceil(retryAfterMs / 1_000)} s at the earliest; mend the Template, or ` +
      `set its spec.upgrade to Manual: then the actor goes on with the revision that it has`;
    return new SubstrateError(last.code, message, { cause: last, retryAfterMs });
  }

  failed(uid: string, revision: string, error: unknown): void {
    if (!(error instanceof SubstrateError) || !programsFault.has(error.code)) return;
    const before = this.#attempts.get(uid);
    const failures = before?.revision === revision ? before.failures + 1 : 1;
    const nowMs = this.#now();
    for (const [other, { retryAtMs }] of this.#attempts) {
      if (nowMs > retryAtMs + forgetAfterMs) this.#attempts.delete(other);
    }
    const pauseMs = Math.min(lastPauseMs, firstPauseMs * 2 ** Math.min(failures - 1, 20));
    this.#attempts.set(uid, { revision, failures, retryAtMs: nowMs + pauseMs, last: error });
  }

  /** It runs, or a person has chosen what it starts from. */
  over(uid: string): void {
    this.#attempts.delete(uid);
  }
}
