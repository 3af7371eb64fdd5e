import { randomBytes } from "node:crypto";
import { createXXHash128 } from "hash-wasm";
import { expect, it } from "vitest";
import { HASH_BYTES, PageHash } from "./page-hash.ts";
import { PAGE_BYTES } from "./pages.ts";

it("is xxh128 of each page, whatever is in it and however many there are", async () => {
  const hash = await PageHash.create();
  const reference = await createXXHash128();
  const whole = randomBytes(2 * PAGE_BYTES);
  for (const pages of [
    randomBytes(37 * PAGE_BYTES),
    Buffer.alloc(17 * PAGE_BYTES),
    Buffer.alloc(16 * PAGE_BYTES, 0xff),
    Buffer.concat(Array.from({ length: 16 }, (_none, i) => whole.subarray(i * 100, i * 100 + PAGE_BYTES))),
    Buffer.concat([Buffer.alloc(PAGE_BYTES - 1), Buffer.from([1])]),
  ]) {
    const count = pages.length / PAGE_BYTES;
    const hashes = Buffer.alloc(count * HASH_BYTES);
    hash.of(pages, hashes);
    for (let page = 0; page < count; page += 1) {
      const expected = reference.init().update(pages.subarray(page * PAGE_BYTES, (page + 1) * PAGE_BYTES));
      expect(hashes.subarray(page * HASH_BYTES, (page + 1) * HASH_BYTES)).toEqual(
        Buffer.from(expected.digest("binary")),
      );
    }
  }
  expect(hash.isZero(hash.zero)).toBe(true);
});
