import { describe, expect, it } from "vitest";
import { SettledStates } from "./settled-states.ts";

describe("SettledStates", () => {
  it("hides a transitional state for its first second, then shows it", () => {
    const states = new SettledStates();
    expect(states.settle("u", "ACTOR_STATE_RESUMING", "ACTOR_STATE_SUSPENDED", 0)).toEqual({
      state: "ACTOR_STATE_SUSPENDED",
      recheckAfterMs: 1_000,
    });
    expect(states.settle("u", "ACTOR_STATE_RESUMING", "ACTOR_STATE_SUSPENDED", 400).recheckAfterMs).toBe(600);
    expect(states.settle("u", "ACTOR_STATE_RESUMING", "ACTOR_STATE_SUSPENDED", 1_000)).toEqual({
      state: "ACTOR_STATE_RESUMING",
      recheckAfterMs: undefined,
    });
  });

  it("shows lasting states at once, and counts anew afterwards", () => {
    const states = new SettledStates();
    states.settle("u", "ACTOR_STATE_SUSPENDING", "ACTOR_STATE_RUNNING", 0);
    expect(states.settle("u", "ACTOR_STATE_SUSPENDED", "ACTOR_STATE_RUNNING", 100).state).toBe("ACTOR_STATE_SUSPENDED");
    expect(states.settle("u", "ACTOR_STATE_SUSPENDING", "ACTOR_STATE_RUNNING", 5_000).recheckAfterMs).toBe(1_000);
  });
});
