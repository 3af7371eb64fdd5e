/** Why a benchmark was given up. */
class Interrupted extends Error {
  constructor(why: string) {
    super(`given up (${why})`);
  }
}

/**
 * Aborted by the first signal, to this process or to the one that started it, or when that one is gone. What waits then
 * fails, and what was made is removed on the way out; later signals don't disturb that.
 */
export function interruption(say: (line: string) => void): AbortSignal {
  const abort = new AbortController();
  const giveUp = (why: string): void => {
    if (abort.signal.aborted) return;
    say(`giving up (${why}): removing what was made, for a minute at most`);
    abort.abort(new Interrupted(why));
  };
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(name, () => {
      giveUp(name);
    });
  }
  process.on("message", (name) => {
    giveUp(String(name));
  });
  process.on("disconnect", () => {
    giveUp("the process that started it ended");
  });
  return abort.signal;
}

/**
 * Runs all at once. The first failure gives the others up, by a signal that they look at between steps; it is thrown when
 * all have ended, so that nobody removes what another still uses.
 */
export async function allAtOnce<T>(
  signal: AbortSignal,
  works: readonly ((signal: AbortSignal) => Promise<T>)[],
): Promise<T[]> {
  const failed = new AbortController();
  const both = AbortSignal.any([signal, failed.signal]);
  const results = await Promise.allSettled(
    works.map(async (work) => {
      try {
        return await work(both);
      } catch (error) {
        failed.abort(error);
        throw error;
      }
    }),
  );
  both.throwIfAborted();
  return results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
}
