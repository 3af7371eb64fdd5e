import { setTimeout as delay } from "node:timers/promises";

export interface EventuallyOptions {
  deadlineMs: number;
  /** Default 50. */
  everyMs?: number;
}

/** Calls `check` until it does not throw and returns its value. @throws its last error after the deadline. */
export async function eventually<T>(check: () => T | Promise<T>, options: EventuallyOptions): Promise<T> {
  const end = performance.now() + options.deadlineMs;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (performance.now() > end) throw error;
    }
    await delay(options.everyMs ?? 50);
  }
}
