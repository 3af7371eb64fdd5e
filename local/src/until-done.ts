import { setTimeout as delay } from "node:timers/promises";

export interface UntilDoneOptions {
  /** Gives it up. */
  signal: AbortSignal;
  /** Between a failure and the next try. */
  pauseMs: number;
  /** Hears of each failure that is not the one before it again. */
  onFailure: (message: string) => void;
}

/** Tries until it succeeds or is given up; then it just returns. */
export async function untilDone(work: () => Promise<void>, options: UntilDoneOptions): Promise<void> {
  const { signal, pauseMs, onFailure } = options;
  const givenUp = (): boolean => signal.aborted;
  let told: string | undefined;
  while (!givenUp()) {
    try {
      await work();
      return;
    } catch (error) {
      if (givenUp()) return;
      const message = error instanceof Error ? error.message : String(error);
      if (message !== told) onFailure(message);
      told = message;
    }
    // given up during the pause: the loop's condition ends it
    await delay(pauseMs, undefined, { signal }).catch(() => undefined);
  }
}
