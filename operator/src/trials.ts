import { asSubstrateError, type ErrorCode, type SubstrateError } from "@substrate/lib/errors.ts";
import {
  type Environment,
  type Program,
  type StoredPrefix,
  type StoredSnapshot,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type AteletLink } from "./atelet-link.ts";
import { missingSecretRetryMs } from "./environment.ts";
import { Rest } from "./rest.ts";

export interface FailedTrial {
  kind: "failed";
  error: SubstrateError;
  /** Failures of this program in a row. */
  failures: number;
  /** Until the next try; undefined: only another program can do better. */
  rest: Rest | undefined;
}

export interface ReadyTrial {
  kind: "ready";
  imageDigest: string;
  readyMs: number;
  /** What was kept, when it was asked for. */
  golden: StoredSnapshot | undefined;
  /** Why nothing was kept though it was asked for; else empty. */
  goldenFailure: string;
}

export type TrialOutcome = { kind: "running" } | ReadyTrial | FailedTrial;

/** What is run. */
export interface TrialRun {
  program: Program;
  /** Resolves what its environment names, at the time of the run. Throws SubstrateError. */
  environment: () => Promise<Environment>;
  /** Where the run is to be kept; undefined: nowhere. */
  golden: StoredPrefix | undefined;
}

export interface TrialsOptions {
  log: Logger;
  /** Default performance.now. */
  monotonicMs?: () => number;
}

/** A pull of a large image on a slow line, and the start of the program. */
const trialDeadlineMs = 15 * 60_000;

interface BackOff {
  firstMs: number;
  lastMs: number;
}

/** The node, a registry or the network may be well again soon. */
const passing: BackOff = { firstMs: 5_000, lastMs: 5 * 60_000 };
/** The program is at fault: what it needs may come up late, and a tag may be pushed anew, but a try costs the node room. */
const slow: BackOff = { firstMs: 30_000, lastMs: 10 * 60_000 };

const slowCodes: ReadonlySet<ErrorCode> = new Set(["IMAGE_INVALID", "PROGRAM_EXITED", "NOT_READY"]);

/** How long a program rests after so many failures in a row; undefined for one that is as wrong the next time. */
export function restAfterMs(code: ErrorCode, failures: number): number | undefined {
  if (code === "INVALID") return undefined;
  if (code === "SECRET_MISSING") return missingSecretRetryMs;
  const { firstMs, lastMs } = slowCodes.has(code) ? slow : passing;
  return Math.min(lastMs, firstMs * 2 ** Math.min(failures - 1, 20));
}

/**
 * Runs of programs on trial, each under a key (`<template uid>/…`, another one for each change). They take as long as an image takes to
 * come, so they run beside the reconciles, which only look at how they stand. A failure stays known until its next try
 * has ended: however often it is looked at, nothing is tried before it is due.
 */
export class Trials {
  readonly #trials = new Map<string, TrialOutcome>();
  /** Runs under way whose state is to be kept, by the uid of the Snapshot object. */
  readonly #taking = new Map<string, AbortController>();
  readonly #log: Logger;
  readonly #monotonicMs: () => number;

  constructor({ log, monotonicMs = () => performance.now() }: TrialsOptions) {
    this.#log = log;
    this.#monotonicMs = monotonicMs;
  }

  /**
   * How the program's trial stands, started now if it is due and there is a node for it; undefined if it was never
   * tried. `onEnd` is called when a trial that was started here has an outcome.
   */
  ensure(key: string, link: AteletLink | undefined, trial: TrialRun, onEnd: () => void): TrialOutcome | undefined {
    const known = this.#trials.get(key);
    if (link === undefined || (known !== undefined && !this.#isDue(known))) return known;
    const failures = known?.kind === "failed" ? known.failures : 0;
    const running: TrialOutcome = { kind: "running" };
    // another program of the Template begins anew, should it come back
    this.forgetTemplate(trial.program.templateUid);
    this.#trials.set(key, running);
    void this.#run(link, trial, failures)
      .then((outcome) => {
        // forgotten meanwhile, and perhaps begun anew
        if (this.#trials.get(key) === running) this.#trials.set(key, outcome);
      })
      .finally(onEnd);
    return running;
  }

  /** Whether a try would begin now, were there a node for it. */
  wouldStart(key: string): boolean {
    const known = this.#trials.get(key);
    return known === undefined || this.#isDue(known);
  }

  /** Whether a run that is kept as this Snapshot is under way; asks it to end. */
  stopTaking(snapshotUid: string): boolean {
    const taking = this.#taking.get(snapshotUid);
    taking?.abort();
    return taking !== undefined;
  }

  /** The outcome was used: the next `ensure` tries again. */
  forget(key: string): void {
    this.#trials.delete(key);
  }

  /** The Template is gone. */
  forgetTemplate(templateUid: string): void {
    for (const key of this.#trials.keys()) if (key.startsWith(`${templateUid}/`)) this.#trials.delete(key);
  }

  #isDue(outcome: TrialOutcome): boolean {
    return outcome.kind === "failed" && outcome.rest?.leftMs === 0;
  }

  async #run(link: AteletLink, trial: TrialRun, failedBefore: number): Promise<TrialOutcome> {
    const { environment, program, golden: prefix } = trial;
    const stop = new AbortController();
    if (prefix !== undefined) this.#taking.set(prefix.uid, stop);
    try {
      const { imageDigest, readyMs, golden, goldenFailure } = await link.call(
        (client) => client.tryProgram.bind(client),
        { program, environment: await environment(), golden: prefix },
        { deadlineMs: trialDeadlineMs, signal: stop.signal },
      );
      return { kind: "ready", imageDigest, readyMs: Number(readyMs), golden, goldenFailure };
    } catch (thrown) {
      const error = asSubstrateError(thrown);
      const failures = failedBefore + 1;
      const restMs = restAfterMs(error.code, failures);
      const { templateName, revision } = program;
      this.#log.warn("trial run failed", { template: templateName, revision, failures, restMs, error });
      const rest = restMs === undefined ? undefined : new Rest(restMs, this.#monotonicMs);
      return { kind: "failed", error, failures, rest };
    } finally {
      if (prefix !== undefined) this.#taking.delete(prefix.uid);
    }
  }
}
