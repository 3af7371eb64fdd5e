import { describe, expect, it } from "vitest";
import { reasonOf } from "./reasons.ts";

describe("reasonOf", () => {
  it("makes a condition reason of an error code", () => {
    expect(reasonOf("IMAGE_UNAVAILABLE")).toBe("ImageUnavailable");
    expect(reasonOf("HELD")).toBe("Held");
    expect(reasonOf("ODD_ONE")).toBe("Internal");
  });
});
