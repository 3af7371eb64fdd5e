import { type FailedTry } from "./actor.ts";
import { type Ticket } from "./ticket.ts";

const firstRetryMs = 20;
const lastRetryMs = 500;

/**
 * Counts one request's failed connections. On a stale route the next Route comes within moments; on one that stays,
 * the program itself refuses, and after the patience for that the request is answered so. While the atelet is away the
 * route may be stale for longer (its pod was killed): then a refusal says nothing of the program.
 */
export class Tries {
  readonly #patienceMs: number;
  #failed: { ticket: Ticket; since: number; retryMs: number } | undefined;

  constructor(patienceMs: number) {
    this.#patienceMs = patienceMs;
  }

  /** What to wait for before the next try; undefined when the same route has refused for too long. */
  failed(ticket: Ticket): FailedTry | undefined {
    const now = performance.now();
    const { holding, version } = ticket;
    const before = this.#failed;
    if (before?.ticket.holding !== holding || before.ticket.version !== version) {
      this.#failed = { ticket, since: now, retryMs: firstRetryMs };
      return { holding, version, retryAt: now + firstRetryMs };
    }
    if (!holding.isAttached) before.since = now;
    if (now - before.since > this.#patienceMs) return undefined;
    before.retryMs = Math.min(lastRetryMs, before.retryMs * 2);
    return { holding, version, retryAt: now + before.retryMs };
  }
}
