import { expect, test } from "vitest";
import { withoutSubject } from "./subject.ts";

test.each([
  ["Actor default/a: node vm has no room", "node vm has no room"],
  ["Actor default/a is kept asleep", "it is kept asleep"],
  ["Actor default/ab is kept asleep", "Actor default/ab is kept asleep"],
  ["node vm: actor default/a ended", "node vm: it ended"],
  ["node vm: actor default/ab ended", "node vm: actor default/ab ended"],
  ["2 requests open", "2 requests open"],
])("%s", (message, expected) => {
  expect(withoutSubject("default/a", message)).toBe(expected);
});
