import { setTimeout as delay } from "node:timers/promises";

/** So many endings are remembered: more than sandboxes can end while an atelet is being restarted. */
const KEPT = 512;
/** The end of a process is seen in /proc before its parent has waited for it and told. */
const PATIENCE_MS = 5000;

/** How a process ended, as waitpid(2) says. */
export type ExitStatus = { code: number } | { signal: number };

/** One ended process; the start time tells it from a later one with the same pid. */
export interface Exit {
  pid: number;
  /** Clock ticks since boot (field 22 of /proc/PID/stat). */
  startTicks: number;
  status: ExitStatus;
}

/** The last endings of processes. */
export class Exits {
  readonly #statuses = new Map<string, ExitStatus>();
  #news = Promise.withResolvers<undefined>();

  add(exit: Exit): void {
    this.#statuses.set(keyOf(exit), exit.status);
    for (const oldest of this.#statuses.keys()) {
      if (this.#statuses.size <= KEPT) break;
      this.#statuses.delete(oldest);
    }
    this.#news.resolve(undefined);
    this.#news = Promise.withResolvers();
  }

  /** Waits a moment if it isn't known yet, unless it ended long ago; undefined if it stays so. */
  async of(process: Pick<Exit, "pid" | "startTicks">, options = { longAgo: false }): Promise<ExitStatus | undefined> {
    const over = delay(options.longAgo ? 0 : PATIENCE_MS, "over" as const, { ref: false });
    for (;;) {
      const status = this.#statuses.get(keyOf(process));
      if (status !== undefined || (await Promise.race([this.#news.promise, over])) === "over") return status;
    }
  }

  all(): Exit[] {
    return [...this.#statuses].map(([key, status]) => {
      const [pid = 0, startTicks = 0] = key.split(" ").map(Number);
      return { pid, startTicks, status };
    });
  }
}

function keyOf({ pid, startTicks }: Pick<Exit, "pid" | "startTicks">): string {
  return `${pid} ${startTicks}`;
}

/** @param status as waitpid(2) gives it. */
export function decodeStatus(status: number): ExitStatus {
  const signal = status & 0x7f;
  return signal === 0 ? { code: (status >> 8) & 0xff } : { signal };
}
