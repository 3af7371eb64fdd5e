import { type ErrorCode, SubstrateError } from "@substrate/lib/errors.ts";
import { expect, it } from "vitest";
import { type ProgramPart } from "./program.ts";
import { trialFailure } from "./trial-failure.ts";

const part = { image: "app:1", memoryBytes: 256 * 2 ** 20 } as ProgramPart;

it.each<[ErrorCode, string, string]>([
  ["IMAGE_UNAVAILABLE", "node vm: image app:1: ENOENT: no such file", "Image app:1: ENOENT: no such file"],
  ["IMAGE_INVALID", "node vm: it has no program", "Image app:1: it has no program"],
  ["PROGRAM_EXITED", "node vm: program of Template t ended with code 1", "program of Template t ended with code 1"],
  ["STORE_UNAVAILABLE", "node vm: the store is away", "node vm: the store is away"],
  [
    "NO_ROOM",
    "node vm: needs 288 MiB of memory, but this node can give at most 200 MiB",
    "resources.limits.memory is 256.0 MiB, 288.0 MiB with the runtime's own 32.0 MiB: node vm: needs 288 MiB of memory, but this node can give at most 200 MiB; lower it, or add a larger node",
  ],
  [
    "NO_ROOM",
    "node vm: all 8 network slots of this node are in use",
    "node vm: all 8 network slots of this node are in use",
  ],
])("%s: %s", (code, message, expected) => {
  expect(trialFailure(part, new SubstrateError(code, message))).toBe(expected);
});
