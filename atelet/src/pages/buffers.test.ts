import { expect, it } from "vitest";
import { Buffers } from "./buffers.ts";

const mib = 1 << 20;

it("memory that came back is used again, and so many of one size are there as were in use at once", () => {
  const buffers = new Buffers(40 * mib);
  const first = buffers.take(8 * mib);
  buffers.giveBack(first);
  expect(buffers.take(7 * mib)).toBe(first);
  expect(buffers.take(8 * mib)).not.toBe(first);
});

it("what waits to be used again makes room for another size, and is freed at the end", () => {
  const buffers = new Buffers(4 * mib);
  const large = buffers.take(4 * mib);
  buffers.giveBack(large);
  const small = buffers.take(1);
  expect(large.detached).toBe(true);
  expect(small.byteLength).toBe(Buffers.sizeFor(1));
  buffers.giveBack(small);
  buffers.end();
  expect(small.detached).toBe(true);
});
