import { describe, expect, it } from "vitest";
import { mergeConditions, reasonOf } from "./conditions.ts";

const now = new Date("2026-05-01T10:00:00.123Z");

describe("mergeConditions", () => {
  it("sets the time of a new condition, without fractions", () => {
    const [ready] = mergeConditions(undefined, [{ type: "Ready", status: "True", reason: "A", message: "" }], 3, now);
    expect(ready).toMatchObject({ lastTransitionTime: "2026-05-01T10:00:00Z", observedGeneration: 3 });
  });

  it("moves the time only when the status flips", () => {
    const before = {
      type: "Ready",
      status: "True",
      reason: "A",
      message: "",
      lastTransitionTime: "2026-01-01T00:00:00Z",
    } as const;
    const [kept] = mergeConditions([before], [{ type: "Ready", status: "True", reason: "B", message: "m" }], 1, now);
    expect(kept).toMatchObject({ reason: "B", lastTransitionTime: "2026-01-01T00:00:00Z" });
    const [flipped] = mergeConditions(
      [before],
      [{ type: "Ready", status: "False", reason: "B", message: "m" }],
      1,
      now,
    );
    expect(flipped?.lastTransitionTime).toBe("2026-05-01T10:00:00Z");
  });
});

describe("reasonOf", () => {
  it("makes a condition reason of an error code", () => {
    expect(reasonOf("IMAGE_UNAVAILABLE")).toBe("ImageUnavailable");
    expect(reasonOf("HELD")).toBe("Held");
  });
});
