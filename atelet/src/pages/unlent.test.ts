import { afterAll, beforeAll, expect, it } from "vitest";
import { kernelCalls } from "../writeback/kernel-calls.ts";
import { pageCache, pinFile } from "../writeback/page-cache.ts";
import { PAGE_BYTES } from "./pages.ts";
import { randomPages, TestStore } from "./test-store.ts";

let store: TestStore;
beforeAll(async () => {
  store = await TestStore.create();
});
afterAll(() => store.remove());

/** Pages of a fetched image that nobody has given to the disk. */
async function unwritten(lent: boolean): Promise<number> {
  const name = `fetched-${String(lent)}`;
  await store.fetch("image", name, { lent });
  const state = pageCache(kernelCalls()).inspect(await pinFile(store.local(name).file));
  if (state === "gone") throw new Error("the image is gone");
  return state.dirtyPages;
}

/** Two of WriteBehind's. */
const chunksPages = (2 * 8 * 2 ** 20) / PAGE_BYTES;

it("R7: without a loan about two chunks of an image are dirty at most, with one it waits for nobody", async () => {
  const pages = 3 * chunksPages;
  await store.store("image", randomPages(pages));
  expect(await unwritten(false)).toBeLessThanOrEqual(chunksPages);
  expect(await unwritten(true)).toBeGreaterThan(chunksPages);
});
