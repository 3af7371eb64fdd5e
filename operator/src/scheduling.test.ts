import { describe, expect, it } from "vitest";
import { type Toleration } from "@substrate/crds/index.ts";
import { type Node, type Taint } from "@substrate/lib/kube/types.ts";
import { exclusionOf, type NodeTraits, reluctance, tolerates, traitsOf } from "./scheduling.ts";

const traits = (changes: Partial<NodeTraits> = {}): NodeTraits => ({
  labels: {},
  taints: [],
  unschedulable: false,
  trouble: undefined,
  ...changes,
});
const taint = (text: string): Taint => {
  const [, key = "", value, effect] = /^([^=:]+)(?:=([^:]*))?:(.+)$/.exec(text) ?? [];
  return { key, effect: effect as Taint["effect"], ...(value === undefined ? {} : { value }) };
};
const asks = (tolerations: Toleration[], ...selectors: Record<string, string>[]) => ({ selectors, tolerations });

describe("tolerates, by the rules that Kubernetes documents for pods", () => {
  it.each<[string, Toleration, string, boolean]>([
    [
      "the same key, value and effect",
      { key: "a", operator: "Equal", value: "1", effect: "NoSchedule" },
      "a=1:NoSchedule",
      true,
    ],
    ["no operator: Equal", { key: "a", value: "1", effect: "NoSchedule" }, "a=1:NoSchedule", true],
    ["another value", { key: "a", value: "2", effect: "NoSchedule" }, "a=1:NoSchedule", false],
    ["no value, and a taint with one", { key: "a", effect: "NoSchedule" }, "a=1:NoSchedule", false],
    ["no value, and a taint without", { key: "a", effect: "NoSchedule" }, "a:NoSchedule", true],
    ["Exists: any value", { key: "a", operator: "Exists", effect: "NoSchedule" }, "a=1:NoSchedule", true],
    ["another key", { key: "b", operator: "Exists" }, "a:NoSchedule", false],
    ["another effect", { key: "a", operator: "Exists", effect: "NoExecute" }, "a:NoSchedule", false],
    ["no effect: all effects", { key: "a", operator: "Exists" }, "a:NoExecute", true],
    ["no key with Exists: every taint", { operator: "Exists" }, "a=1:NoExecute", true],
    [
      "an empty key with Exists and an effect",
      { key: "", operator: "Exists", effect: "NoExecute" },
      "a:NoSchedule",
      false,
    ],
    ["no key with Equal: nothing", { operator: "Equal", value: "1" }, "a=1:NoSchedule", false],
  ])("%s", (_, toleration, text, expected) => {
    expect(tolerates(toleration, taint(text))).toBe(expected);
  });
});

describe("exclusionOf", () => {
  it.each<[string, Partial<NodeTraits>, ReturnType<typeof asks>, string | undefined]>([
    ["an ordinary node", {}, asks([]), undefined],
    ["all labels", { labels: { a: "1", b: "" } }, asks([], { a: "1" }, { b: "" }), undefined],
    ["a label of another value", { labels: { a: "2" } }, asks([], { a: "1" }), "lacks label a=1 of its nodeSelector"],
    ["a label that isn't there, asked for empty", {}, asks([], { a: "" }), "lacks label a= of its nodeSelector"],
    [
      "the actor's own selector against its Template's",
      { labels: { a: "1" } },
      asks([], { a: "1" }, { a: "2" }),
      "lacks label a=2",
    ],
    ["a taint", { taints: [taint("a=1:NoSchedule")] }, asks([]), "has taint a=1:NoSchedule, which is not tolerated"],
    ["a taint NoExecute", { taints: [taint("a:NoExecute")] }, asks([]), "has taint a:NoExecute"],
    [
      "a taint that is tolerated",
      { taints: [taint("a:NoSchedule")] },
      asks([{ key: "a", operator: "Exists" }]),
      undefined,
    ],
    [
      "two taints of which one is tolerated",
      { taints: [taint("a:NoSchedule"), taint("b:NoSchedule")] },
      asks([{ key: "a", operator: "Exists" }]),
      "has taint b:NoSchedule",
    ],
    ["a taint that only prefers", { taints: [taint("a:PreferNoSchedule")] }, asks([]), undefined],
    ["a cordon", { unschedulable: true }, asks([]), "is cordoned"],
    [
      "a cordon and its taint",
      { unschedulable: true, taints: [taint("node.kubernetes.io/unschedulable:NoSchedule")] },
      asks([]),
      "is cordoned",
    ],
    ["a cordon that is tolerated", { unschedulable: true }, asks([{ operator: "Exists" }]), undefined],
    [
      "a cordon that is tolerated by its key",
      { unschedulable: true },
      asks([{ key: "node.kubernetes.io/unschedulable", operator: "Exists", effect: "NoSchedule" }]),
      undefined,
    ],
    [
      "one that is not Ready, whatever is tolerated",
      { trouble: "is not Ready" },
      asks([{ operator: "Exists" }]),
      "is not Ready",
    ],
    [
      "the taint of a full disk",
      { taints: [taint("node.kubernetes.io/disk-pressure:NoSchedule")] },
      asks([]),
      "disk-pressure",
    ],
  ])("%s", (_, node, requirements, expected) => {
    const found = exclusionOf(traits(node), requirements)?.text;
    if (expected === undefined) expect(found).toBeUndefined();
    else expect(found).toContain(expected);
  });

  it("tells what somebody wants from what passes", () => {
    const deliberate = (changes: Partial<NodeTraits>) => exclusionOf(traits(changes), asks([]))?.deliberate;
    expect(deliberate({ unschedulable: true })).toBe(true);
    expect(deliberate({ taints: [taint("dedicated=gpu:NoSchedule")] })).toBe(true);
    expect(deliberate({ trouble: "is not Ready" })).toBe(false);
    expect(deliberate({ taints: [taint("node.kubernetes.io/unreachable:NoExecute")] })).toBe(false);
    // also when the node isn't well besides
    expect(deliberate({ trouble: "is not Ready", unschedulable: true })).toBe(true);
  });
});

it("counts the taints that ask for another node", () => {
  const node = traits({ taints: [taint("a:PreferNoSchedule"), taint("b=1:PreferNoSchedule"), taint("c:NoSchedule")] });
  expect(reluctance(node, asks([]))).toBe(2);
  expect(reluctance(node, asks([{ key: "a", operator: "Exists" }]))).toBe(1);
});

describe("traitsOf", () => {
  const node = (status: string): Node => ({
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: "n", labels: { a: "1" } },
    status: { conditions: [{ type: "Ready", status }] },
  });

  it("takes a node that says nothing of itself for well", () => {
    expect(traitsOf(undefined, false).trouble).toBeUndefined();
    expect(traitsOf({ apiVersion: "v1", kind: "Node", metadata: { name: "n" } }, true).trouble).toBeUndefined();
    expect(traitsOf(node("True"), true)).toMatchObject({ trouble: undefined, labels: { a: "1" } });
  });

  it("says what is the matter", () => {
    expect(traitsOf(node("Unknown"), true).trouble).toBe("is not Ready");
    expect(traitsOf(undefined, true).trouble).toBe("has no Node object any more");
  });
});
