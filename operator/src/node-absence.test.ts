import { expect, it } from "vitest";
import { type Node } from "@substrate/lib/kube/types.ts";
import { type AbsenceFacts, absenceText } from "./node-absence.ts";

const node = (ready?: string): Node => ({
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "n" },
  ...(ready && { status: { conditions: [{ type: "Ready", status: ready }] } }),
});
const facts = { nodeName: "n", address: "10.0.0.1:7443", renews: false, node: undefined, hasNodes: true };

it.each<[string, Partial<AbsenceFacts>, string]>([
  ["deleted for good", { address: undefined }, "node n, which is gone (no Node, no atelet)"],
  [
    "its Node deleted, the atelet's Lease there",
    {},
    "node n, whose Node object is gone and whose atelet does not answer",
  ],
  [
    "its atelet gone",
    { address: undefined, node: node("True") },
    "node n, which has no atelet now, though the Node is there: look for its atelet's pod",
  ],
  ["the machine off", { node: node("Unknown") }, "node n, which is not Ready and whose atelet does not answer"],
  [
    "the pod broken",
    { node: node("True") },
    "node n, whose atelet does not answer, though the Node is Ready: look at its atelet's pod",
  ],
  [
    "cut off",
    { renews: true, node: node("True") },
    "node n, whose atelet does not answer at 10.0.0.1:7443, though it renews its Lease: look at the network",
  ],
  ["without Nodes", { hasNodes: false }, "node n, whose atelet does not answer"],
  ["without Nodes, no atelet", { hasNodes: false, address: undefined }, "node n, which has no atelet now"],
])("%s", (_, changes, expected) => {
  expect(absenceText({ ...facts, ...changes })).toBe(expected);
});
