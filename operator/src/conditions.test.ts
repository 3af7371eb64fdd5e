import { describe, expect, it } from "vitest";
import { mergeConditions } from "./conditions.ts";

const now = new Date("2026-05-01T10:00:00.123Z");

describe("mergeConditions", () => {
  it("sets the time of a new condition, without fractions", () => {
    const [ready] = mergeConditions(
      undefined,
      [{ type: "Ready", status: "True", reason: "Running", message: "" }],
      3,
      now,
    );
    expect(ready).toMatchObject({ lastTransitionTime: "2026-05-01T10:00:00Z", observedGeneration: 3 });
  });

  it("moves the time only when the status flips", () => {
    const before = {
      type: "Ready",
      status: "True",
      reason: "Running",
      message: "",
      lastTransitionTime: "2026-01-01T00:00:00Z",
    } as const;
    const [kept] = mergeConditions(
      [before],
      [{ type: "Ready", status: "True", reason: "Asleep", message: "m" }],
      1,
      now,
    );
    expect(kept).toMatchObject({ reason: "Asleep", lastTransitionTime: "2026-01-01T00:00:00Z" });
    const [flipped] = mergeConditions(
      [before],
      [{ type: "Ready", status: "False", reason: "Asleep", message: "m" }],
      1,
      now,
    );
    expect(flipped?.lastTransitionTime).toBe("2026-05-01T10:00:00Z");
  });
});
