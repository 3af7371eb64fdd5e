import fc from "fast-check";
import { expect, it } from "vitest";
import { decodeIndex, encodeIndex, firstPages, type Pack, packPages, type PageIndex, ZERO_PAGE } from "./page-index.ts";
import { PAGE_BYTES } from "./pages.ts";

const pack: fc.Arbitrary<Pack> = fc.record({
  key: fc.string(),
  segments: fc.array(
    fc.record({
      bytes: fc.integer({ min: 1, max: 1 << 20 }),
      zstd: fc.boolean(),
      pages: fc.integer({ min: 1, max: 256 }),
      sha256: fc.uint8Array({ minLength: 32, maxLength: 32 }),
    }),
    { minLength: 1, maxLength: 5 },
  ),
});

const index: fc.Arbitrary<PageIndex> = fc
  .record({ packs: fc.array(pack, { minLength: 1, maxLength: 5 }), cutBytes: fc.nat(PAGE_BYTES - 1) })
  .chain(({ packs, cutBytes }) => {
    const stored = firstPages(packs).at(-1) ?? 0;
    const page = fc.oneof(fc.constant(ZERO_PAGE), fc.nat(stored - 1));
    return fc.array(page, { minLength: 1, maxLength: 300 }).map((pages) => ({
      sizeBytes: pages.length * PAGE_BYTES - cutBytes,
      packs,
      pages: Uint32Array.from(pages),
    }));
  });

it("an index is read as it was written, whatever is in it", () => {
  fc.assert(
    fc.property(index, (written) => {
      expect(decodeIndex(encodeIndex(written), "it")).toEqual(written);
    }),
  );
});

it("an index with any byte changed, or cut short, is damaged", () => {
  fc.assert(
    fc.property(index, fc.nat(), fc.integer({ min: 1, max: 255 }), (written, at, change) => {
      const bytes = encodeIndex(written);
      bytes[at % bytes.length] = (bytes[at % bytes.length] ?? 0) ^ change;
      expect(() => decodeIndex(bytes, "it")).toThrow(/^it (is no index of pages|has other content than was written)$/);
      expect(() => decodeIndex(encodeIndex(written).subarray(0, -1 - (at % 70)), "it")).toThrow(/^it /);
    }),
  );
});

it("is a few bytes for pages in a row, and at most a few for each page that is alone", () => {
  const segments = Array.from({ length: 100 }, () => ({
    bytes: 1 << 20,
    zstd: false,
    pages: 256,
    sha256: new Uint8Array(32),
  }));
  const packs = [{ key: "pack", segments }];
  const stored = packPages(packs[0] ?? { key: "", segments: [] });
  const row = Uint32Array.from({ length: stored }, (_none, i) => i);
  const scattered = row.map((i) => (i * 7919) % stored);
  const sizeBytes = stored * PAGE_BYTES;
  expect(encodeIndex({ sizeBytes, packs, pages: row }).length).toBeLessThan(200);
  expect(encodeIndex({ sizeBytes, packs, pages: scattered }).length).toBeLessThan(4 * stored);
});
