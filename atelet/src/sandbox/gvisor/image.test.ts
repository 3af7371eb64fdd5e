import { expect, it } from "vitest";

import { committedBytes } from "./image.ts";

/** A message as runsc writes it: version, one chunk, then memAcct ranges; each number as a varint. */
function pagesMeta(ranges: readonly { start: number; end: number; committed: boolean }[]): Buffer {
  const varint = (value: number): number[] =>
    value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))];
  const body = [0x08, 1, 0x12, 0];
  for (const { start, end, committed } of ranges) {
    const range = [0x08, ...varint(start), 0x10, ...varint(end), 0x18, 1, ...(committed ? [0x28, 1] : [])];
    body.push(0x1a, ...varint(range.length), ...range);
  }
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(body.length));
  return Buffer.concat([length, Buffer.from(body), Buffer.from("what follows is not memory")]);
}

it("adds up the committed ranges only, beyond 4 GiB too", () => {
  const meta = pagesMeta([
    { start: 0, end: 4096, committed: true },
    { start: 4096, end: 1 << 20, committed: false },
    { start: 5 * 2 ** 30, end: 5 * 2 ** 30 + 2 ** 33, committed: true },
  ]);
  expect(committedBytes(meta)).toBe(4096 + 2 ** 33);
});

it("refuses a file that ends too early", () => {
  const meta = pagesMeta([{ start: 0, end: 1 << 20, committed: true }]);
  expect(() => committedBytes(meta.subarray(0, 12))).toThrow("truncated");
  expect(() => committedBytes(Buffer.alloc(3))).toThrow("only 3 bytes");
});
