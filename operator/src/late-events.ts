import { type ActorStatus } from "@substrate/crds/index.ts";
import { type EventFacts, lateReasons } from "./status-events.ts";

/** How long what may pass at once must last before there is an Event of it. */
const patienceMs = 5_000;

interface Waiting {
  facts: EventFacts;
  dueMs: number;
}

export interface DueEvents {
  events: EventFacts[];
  /** When to look again. */
  recheckAfterMs?: number;
}

/** Keeps back Events of what mostly passes within seconds, each until Ready has shown its reason for long enough. */
export class LateEvents {
  readonly #waiting = new Map<string, Waiting>();

  /**
   * @param fresh what began with this status
   * @param nowMs a monotonic clock
   * @returns what is to be told now
   */
  due(uid: string, fresh: readonly EventFacts[], status: Partial<ActorStatus>, nowMs: number): DueEvents {
    const events = fresh.filter(({ reason }) => !lateReasons.has(reason));
    const late = fresh.find(({ reason }) => lateReasons.has(reason));
    if (late !== undefined) this.#waiting.set(uid, { facts: late, dueMs: nowMs + patienceMs });
    const waiting = this.#waiting.get(uid);
    if (waiting === undefined) return { events };
    const lasts = status.conditions?.some(({ type, reason }) => type === "Ready" && reason === waiting.facts.reason);
    if (lasts === true && nowMs < waiting.dueMs) return { events, recheckAfterMs: waiting.dueMs - nowMs };
    this.#waiting.delete(uid);
    return { events: lasts === true ? [...events, waiting.facts] : events };
  }

  /** The actor is gone, or going. */
  forget(uid: string): void {
    this.#waiting.delete(uid);
  }
}
