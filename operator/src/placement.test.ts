import { describe, expect, it } from "vitest";
import { bookingBytes, candidates, type PlacementNode, shortfall } from "./placement.ts";

const mebibyte = 1024 ** 2;

function node(nodeName: string, freeMiB: number, changes: Partial<PlacementNode> = {}): PlacementNode {
  return {
    nodeName,
    reachable: true,
    unschedulable: false,
    limitBytes: 10_000 * mebibyte,
    reserveBytes: 0,
    bookedBytes: (10_000 - freeMiB) * mebibyte,
    ...changes,
  };
}

const request = { bookingBytes: bookingBytes(100 * mebibyte), snapshotNode: undefined, refusedBy: new Set<string>() };
const names = (nodes: PlacementNode[]): string[] => nodes.map(({ nodeName }) => nodeName);

describe("candidates", () => {
  it("takes the emptiest", () => {
    expect(names(candidates([node("a", 500), node("b", 900), node("c", 700)], request))).toEqual(["b", "c", "a"]);
  });

  it("prefers the node with the snapshot where the actor fits", () => {
    const nodes = [node("a", 500), node("b", 900)];
    expect(names(candidates(nodes, { ...request, snapshotNode: "a" }))).toEqual(["a", "b"]);
  });

  it("puts fit before the snapshot, and keeps full nodes as a last try: the figures are a hint", () => {
    const nodes = [node("a", 50), node("b", 900)];
    expect(names(candidates(nodes, { ...request, snapshotNode: "a" }))).toEqual(["b", "a"]);
  });

  it("counts the runtime's overhead", () => {
    expect(names(candidates([node("a", 110), node("b", 140)], { ...request, snapshotNode: "a" }))).toEqual(["b", "a"]);
  });

  it("leaves out cordoned, unreachable and refusing nodes", () => {
    const nodes = [
      node("a", 500, { unschedulable: true }),
      node("b", 500, { reachable: false }),
      node("c", 500),
      node("d", 400),
    ];
    expect(names(candidates(nodes, { ...request, refusedBy: new Set(["c"]) }))).toEqual(["d"]);
  });

  it("is stable between equals", () => {
    expect(names(candidates([node("b", 500), node("a", 500)], request))).toEqual(["a", "b"]);
  });
});

describe("shortfall", () => {
  it("says what is missing and what to do", () => {
    expect(shortfall([], request)).toMatch("no node has registered");
    expect(shortfall([node("a", 1, { reachable: false })], request)).toMatch("can be reached");
    expect(shortfall([node("a", 1, { unschedulable: true })], request)).toMatch("cordoned");
    expect(shortfall([node("a", 100)], request)).toMatch(
      "needs 132 MiB (its limit and 32 MiB for the runtime), 32 MiB more than the emptiest of 1 node(s)",
    );
    expect(shortfall([node("a", 500)], request)).toMatch("refused by 1 node(s)");
  });
});
