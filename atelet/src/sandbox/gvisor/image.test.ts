import { constants } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";

import { committedBytes, createImage, imageFiles } from "./image.ts";

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

it.each([true, false])("R6: pages are written around the page cache only if asked: %s", async (direct) => {
  const dir = await mkdtemp(join(tmpdir(), "image-"));
  const files = await createImage(dir, { direct });
  try {
    const flags = await Promise.all(
      files.map(async ({ fd }) => /^flags:\s*([0-7]+)/m.exec(await readFile(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1]),
    );
    const isDirect = flags.map((octal) => (Number.parseInt(octal ?? "", 8) & constants.O_DIRECT) !== 0);
    expect(isDirect).toEqual(imageFiles.map((name) => direct && name === "pages.img"));
  } finally {
    for (const file of files) await file.close();
    await rm(dir, { recursive: true });
  }
});
