import { describe, expect, it } from "vitest";
import {
  afterPromises,
  bookingBytes,
  candidates,
  type PlacementNode,
  type PlacementRequest,
  shortfall,
} from "./placement.ts";

const mebibyte = 1024 ** 2;

function node(nodeName: string, freeMiB: number, changes: Partial<PlacementNode> = {}): PlacementNode {
  return {
    nodeName,
    reachable: true,
    unschedulable: false,
    labels: {},
    taints: [],
    trouble: undefined,
    limitBytes: 10_000 * mebibyte,
    reserveBytes: 0,
    bookedBytes: (10_000 - freeMiB) * mebibyte,
    ...changes,
  };
}

const request: PlacementRequest = {
  bookingBytes: bookingBytes(100 * mebibyte),
  snapshotNode: undefined,
  refusedBy: new Set<string>(),
  requirements: { selectors: [], tolerations: [] },
};
const names = (nodes: PlacementNode[]): string[] => nodes.map(({ nodeName }) => nodeName);

describe("candidates", () => {
  it("takes the emptiest", () => {
    expect(names(candidates([node("a", 500), node("b", 900), node("c", 700)], request))).toEqual(["b", "c", "a"]);
  });

  it("spreads a burst of first requests, which all see the figures of before it", () => {
    const nodes = [node("a", 500), node("b", 480)];
    const promises = new Map<string, { nodeName: string; bytes: number }>();
    for (const uid of ["1", "2", "3", "4"]) {
      const [best] = candidates(afterPromises(nodes, promises), request);
      promises.set(uid, { nodeName: best?.nodeName ?? "", bytes: request.bookingBytes });
    }
    expect([...promises.values()].map(({ nodeName }) => nodeName)).toEqual(["a", "b", "a", "b"]);
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

  it("leaves out nodes whose labels or taints don't fit, and takes those that ask for another one last", () => {
    const nodes = [
      node("a", 900, { labels: { disk: "hdd" } }),
      node("b", 800, { labels: { disk: "ssd" }, taints: [{ key: "t", effect: "NoSchedule" }] }),
      node("c", 700, { labels: { disk: "ssd" }, taints: [{ key: "t", effect: "PreferNoSchedule" }] }),
      node("d", 600, { labels: { disk: "ssd" } }),
    ];
    const selectors = [{ disk: "ssd" }];
    const asks = (tolerations: PlacementRequest["requirements"]["tolerations"]) => ({
      ...request,
      snapshotNode: "c",
      requirements: { selectors, tolerations },
    });
    expect(names(candidates(nodes, asks([])))).toEqual(["d", "c"]);
    expect(names(candidates(nodes, asks([{ key: "t", operator: "Exists" }])))).toEqual(["c", "b", "d"]);
  });

  it("is stable between equals", () => {
    expect(names(candidates([node("b", 500), node("a", 500)], request))).toEqual(["a", "b"]);
  });
});

describe("shortfall", () => {
  it("says what is missing and what to do", () => {
    expect(shortfall([], request)).toMatchObject({
      reason: "NoNode",
      message: "no node has registered: start an atelet",
    });
    expect(shortfall([node("a", 100)], request)).toEqual({
      reason: "NoRoom",
      message:
        "needs 132 MiB (its limit and 32 MiB for the runtime), 32 MiB more than the emptiest of 1 node has free: suspend other actors, lower the Template's memory or add a node",
    });
    expect(shortfall([node("a", 500)], request).message).toMatch("refused by 1 node for want of room");
  });

  it("says what excluded how many nodes, and what to do about each", () => {
    const taints = [{ key: "gpu", value: "yes", effect: "NoSchedule" as const }];
    const nodes = [
      node("a", 500, { unschedulable: true }),
      node("b", 500, { unschedulable: true }),
      node("c", 500, { reachable: false }),
      node("d", 500, { taints }),
      node("e", 500, { labels: { disk: "hdd" } }),
    ];
    const requirements = { selectors: [{ disk: "ssd" }], tolerations: [] };
    expect(shortfall(nodes, { ...request, requirements: { ...requirements, selectors: [] } }).message).toMatch(
      "refused by 1 node for want of room",
    );
    expect(shortfall(nodes.slice(0, 4), request)).toEqual({
      reason: "NoNode",
      message:
        "none of 4 nodes may take it (2 are cordoned, 1 does not answer, 1 has taint gpu=yes:NoSchedule, which is not tolerated): uncordon a node (kubectl uncordon NODE), or check the atelets that do not answer, or take the taint off a node, or add a toleration to the Template",
    });
    expect(shortfall(nodes, { ...request, requirements }).message).toMatch(
      "(4 lack label disk=ssd of its nodeSelector, 1 does not answer)",
    );
    expect(shortfall([...nodes.slice(0, 2), node("f", 100)], request).message).toMatch(
      "the emptiest of 1 node has free (of the others 2 are cordoned)",
    );
  });
});
