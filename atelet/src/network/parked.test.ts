import { describe, expect, it } from "vitest";
import { markOf, ParkedAddresses, readMark } from "./parked.ts";

function parked(actor: string, generation = 1, nodeAddress = `100.64.0.${generation}`) {
  return { actor, generation, epoch: 1, nodeAddress };
}

describe("ParkedAddresses", () => {
  it("are one of an actor at most, and given up oldest first when there are too many", () => {
    const addresses = new ParkedAddresses(2);
    expect(addresses.add(parked("a"))).toEqual([]);
    expect(addresses.add(parked("b", 2))).toEqual([]);
    expect(addresses.add(parked("a", 3))).toEqual([parked("a", 1)]);
    expect(addresses.add(parked("c", 4))).toEqual([parked("b", 2)]);
    expect(addresses.count).toBe(2);
    expect(addresses.has("100.64.0.3")).toBe(true);
  });

  it("are for one image alone, once", () => {
    const addresses = new ParkedAddresses(2);
    addresses.add(parked("a", 3));
    for (const other of [{ generation: 2 }, { epoch: 2 }, { actor: "b" }]) {
      expect(addresses.takeFor({ ...parked("a", 3), ...other })).toBeUndefined();
    }
    expect(addresses.takeFor(parked("a", 3))).toEqual(parked("a", 3));
    expect(addresses.takeFor(parked("a", 3))).toBeUndefined();
  });
});

describe("a mark", () => {
  const uid = "00000000-0000-4000-8000-000000000001";

  it("reads back as it was written, and fits into a comment of nft", () => {
    const mark = markOf({ actor: uid, generation: 12_345_678, epoch: 12_345_678 }, "255.255.255.255", Date.now());
    expect(mark.length).toBeLessThan(128);
    expect(readMark(markOf({ actor: uid, generation: 3, epoch: 2 }, "10.0.0.2", 5))).toEqual({
      actor: uid,
      generation: 3,
      epoch: 2,
      podAddress: "10.0.0.2",
      sinceMs: 5,
    });
  });

  it("of another shape is none", () => {
    expect(readMark("")).toBeUndefined();
    expect(readMark(`${uid} x 2 10.0.0.2 5`)).toBeUndefined();
  });
});
