import { asSubstrateError, type SubstrateError } from "@substrate/lib/errors.ts";
import { type Program } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type AteletLink } from "./atelet-link.ts";

export type TrialOutcome =
  | { kind: "running" }
  | { kind: "ready"; imageDigest: string; readyMs: number }
  | { kind: "failed"; error: SubstrateError };

/** A pull of a large image on a slow line, and the start of the program. */
const trialDeadlineMs = 15 * 60_000;

/**
 * Runs of programs on trial, each under a key (template uid and revision). They take as long as an image takes to
 * come, so they run beside the reconciles, which only look at how they stand.
 */
export class Trials {
  readonly #trials = new Map<string, TrialOutcome>();

  /** Starts the trial unless one of this key is known; `onEnd` is called when it has an outcome. */
  ensure(key: string, link: AteletLink, program: Program, onEnd: () => void): TrialOutcome {
    const known = this.#trials.get(key);
    if (known !== undefined) return known;
    const running: TrialOutcome = { kind: "running" };
    this.#trials.set(key, running);
    void this.#run(key, link, program).finally(onEnd);
    return running;
  }

  get(key: string): TrialOutcome | undefined {
    return this.#trials.get(key);
  }

  /** The outcome was used: the next `ensure` tries again. */
  forget(key: string): void {
    this.#trials.delete(key);
  }

  /** The Template is gone. */
  forgetTemplate(templateUid: string): void {
    for (const key of this.#trials.keys()) if (key.startsWith(`${templateUid}/`)) this.#trials.delete(key);
  }

  async #run(key: string, link: AteletLink, program: Program): Promise<void> {
    try {
      const { imageDigest, readyMs } = await link.call(
        (client) => client.tryProgram.bind(client),
        { program },
        { deadlineMs: trialDeadlineMs },
      );
      this.#end(key, { kind: "ready", imageDigest, readyMs: Number(readyMs) });
    } catch (error) {
      this.#end(key, { kind: "failed", error: asSubstrateError(error) });
    }
  }

  #end(key: string, outcome: TrialOutcome): void {
    if (this.#trials.has(key)) this.#trials.set(key, outcome);
  }
}
