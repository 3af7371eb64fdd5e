import { expect, it } from "vitest";
import { summarize } from "./status-line.ts";

it("counts actors by state", () => {
  expect(summarize([])).toBe("0 actors");
  expect(summarize(["suspended"])).toBe("1 actor: 1 suspended");
  expect(summarize(["suspended", "running", "suspended"])).toBe("3 actors: 1 running, 2 suspended");
});
