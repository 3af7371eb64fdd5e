import { expect, it } from "vitest";
import { type Pack, ZERO_PAGE } from "./page-index.ts";
import { livePages, wornPacks } from "./sharing.ts";

function packOf(pages: number): Pack {
  return { key: String(pages), segments: [{ bytes: 1, zstd: false, pages, sha256: new Uint8Array(32) }] };
}

it("a page of a pack lives if any page of the image is it, and counts once", () => {
  const sources = Uint32Array.from([0, 0, 0, ZERO_PAGE, 12, 11, 13, 99]);
  expect(livePages([packOf(10), packOf(3)], sources)).toEqual([1, 2]);
});

it("own packs of which less than a half lives are written anew, foreign and unnamed ones never", () => {
  const packs = [packOf(256), packOf(256), packOf(256), packOf(256)];
  expect(wornPacks(packs, [127, 128, 1, 0], ["own", "own", "foreign", "own"])).toEqual([true, false, false, false]);
});

it("small packs are written anew together, once they are more than 16", () => {
  const packs = [packOf(600), ...Array.from({ length: 17 }, () => packOf(100))];
  const live = packs.map((pack) => Number(pack.key));
  const uses = packs.map(() => "own" as const);
  expect(wornPacks(packs, live, uses)).toEqual(packs.map((_pack, i) => i > 0));
  expect(wornPacks(packs.slice(1), live.slice(1), uses.slice(1)).every(Boolean)).toBe(true);
  expect(wornPacks(packs.slice(2), live.slice(2), uses.slice(2)).some(Boolean)).toBe(false);
});
