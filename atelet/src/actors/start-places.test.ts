import { expect, it, vi } from "vitest";
import { StartPlaces } from "./start-places.ts";

function controlled(places: StartPlaces) {
  const begun: number[] = [];
  const ends: PromiseWithResolvers<number>[] = [];
  const start = (index: number): Promise<number> => {
    const end = (ends[index] = Promise.withResolvers<number>());
    return places.run(
      () => begun.push(index),
      () => end.promise,
    );
  };
  return { begun, ends, start };
}

it("lets a few start at once, and the others in the order in which they came", async () => {
  const { begun, ends, start } = controlled(new StartPlaces(2));
  const started = [0, 1, 2, 3].map(start);
  await vi.waitFor(() => {
    expect(begun).toEqual([0, 1]);
  });
  ends[1]?.resolve(1);
  await vi.waitFor(() => {
    expect(begun).toEqual([0, 1, 2]);
  });
  ends[0]?.reject(new Error("no"));
  await expect(started[0]).rejects.toThrow("no");
  await vi.waitFor(() => {
    expect(begun).toEqual([0, 1, 2, 3]);
  });
  ends[2]?.resolve(2);
  ends[3]?.resolve(3);
  expect(await Promise.all(started.slice(1))).toEqual([1, 2, 3]);
});

it("a program that does not get ready keeps nobody waiting", async () => {
  const { begun, ends, start } = controlled(new StartPlaces(1, 5));
  const slow = start(0);
  const next = start(1);
  await vi.waitFor(() => {
    expect(begun).toEqual([0, 1]);
  });
  ends[1]?.resolve(1);
  expect(await next).toBe(1);
  ends[0]?.resolve(0);
  expect(await slow).toBe(0);
});
