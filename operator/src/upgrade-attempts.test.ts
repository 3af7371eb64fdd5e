import { SubstrateError } from "@substrate/lib/errors.ts";
import { expect, it } from "vitest";
import { UpgradeAttempts } from "./upgrade-attempts.ts";

const exited = new SubstrateError("PROGRAM_EXITED", "its program exited with code 3");

it("a broken revision is tried by wakes at growing pauses, not by each of them", () => {
  let nowMs = 0;
  const attempts = new UpgradeAttempts(() => nowMs);
  const pauses: (number | undefined)[] = [];
  for (let i = 0; i < 11; i += 1) {
    expect(attempts.refusal("u", "ns/a", "r2")).toBeUndefined();
    attempts.failed("u", "r2", exited);
    const refusal = attempts.refusal("u", "ns/a", "r2");
    pauses.push(refusal?.retryAfterMs);
    nowMs += refusal?.retryAfterMs ?? 0;
  }
  expect(pauses).toEqual([2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600].map((seconds) => seconds * 1_000));
  attempts.failed("u", "r2", exited);
  expect(attempts.refusal("u", "ns/a", "r2")).toMatchObject({
    code: "PROGRAM_EXITED",
    message: expect.stringMatching(
      /^Actor ns\/a: its upgrade to revision r2 has failed 12 times.*exited with code 3.*Manual/,
    ) as string,
  });
});

it("another revision, a person's choice and another actor begin anew; what is not the program's fault counts for nothing", () => {
  const attempts = new UpgradeAttempts(() => 0);
  attempts.failed("u", "r2", exited);
  expect(attempts.refusal("u", "ns/a", "r3")).toBeUndefined();
  expect(attempts.refusal("v", "ns/b", "r2")).toBeUndefined();
  attempts.failed("v", "r2", new SubstrateError("NO_ROOM", "full"));
  expect(attempts.refusal("v", "ns/b", "r2")).toBeUndefined();
  attempts.over("u");
  expect(attempts.refusal("u", "ns/a", "r2")).toBeUndefined();
});
