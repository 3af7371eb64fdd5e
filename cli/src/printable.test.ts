import { expect, test } from "vitest";
import { printable } from "./printable.ts";

test("names of an actor's files don't reach the terminal as commands", () => {
  expect(printable("é \u001b]0;owned\u0007\n\u009b2J")).toBe("é \\x1b]0;owned\\x07\\x0a\\x9b2J");
});
