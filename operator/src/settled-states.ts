import { type ActorState } from "@substrate/crds/index.ts";

/** A transitional state is written into a status only when it lasts for longer. */
export const transitionalAfterMs = 1_000;

function isTransitional(state: ActorState): boolean {
  return state === "ACTOR_STATE_RESUMING" || state === "ACTOR_STATE_SUSPENDING";
}

export interface SettledState {
  state: ActorState;
  /** When a transitional state, hidden until now, is to be shown if it still lasts. */
  recheckAfterMs: number | undefined;
}

/** Hides states that pass within a second, so that a quick suspend or resume costs one status write. */
export class SettledStates {
  readonly #since = new Map<string, { state: ActorState; sinceMs: number }>();

  /** `shown` is what the status says now. */
  settle(uid: string, state: ActorState, shown: ActorState | undefined, nowMs: number): SettledState {
    if (!isTransitional(state)) {
      this.#since.delete(uid);
      return { state, recheckAfterMs: undefined };
    }
    const known = this.#since.get(uid);
    const sinceMs = known?.state === state ? known.sinceMs : nowMs;
    this.#since.set(uid, { state, sinceMs });
    const leftMs = sinceMs + transitionalAfterMs - nowMs;
    if (shown === undefined || shown === state || leftMs <= 0) return { state, recheckAfterMs: undefined };
    return { state: shown, recheckAfterMs: leftMs };
  }

  forget(uid: string): void {
    this.#since.delete(uid);
  }
}
