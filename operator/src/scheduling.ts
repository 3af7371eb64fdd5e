import { type Actor, type Template, type Toleration } from "@substrate/crds/index.ts";
import { type Node, type Taint } from "@substrate/lib/kube/types.ts";

/** What a node's object says about who may be placed there. */
export interface NodeTraits {
  labels: Readonly<Record<string, string>>;
  taints: readonly Taint[];
  /** Cordoned. */
  unschedulable: boolean;
  /** Why the node is none for new actors, whatever they tolerate: `is not Ready`; undefined when it is well. */
  trouble: string | undefined;
}

/** What an actor asks of its node. */
export interface NodeRequirements {
  /** Of its Template and its own: all of them hold. */
  selectors: readonly Readonly<Record<string, string>>[];
  tolerations: readonly Toleration[];
}

/** Why a node is no place for an actor. */
export interface Exclusion {
  kind: "unreachable" | "not-ready" | "cordoned" | "selector" | "taint";
  /** To be read after "the node": `has taint a=b:NoSchedule, which is not tolerated`. */
  text: string;
  /** Made by somebody, so that sleeping actors leave; not by a node that isn't well, which may be so for a moment. */
  deliberate: boolean;
}

/** What a cordon is to the scheduler of pods, too. */
const cordon: Taint = { key: "node.kubernetes.io/unschedulable", effect: "NoSchedule" };

/** Put on nodes by Kubernetes itself while they aren't well, and taken off again. */
const conditionTaints: ReadonlySet<string> = new Set([
  "node.kubernetes.io/not-ready",
  "node.kubernetes.io/unreachable",
  "node.kubernetes.io/memory-pressure",
  "node.kubernetes.io/disk-pressure",
  "node.kubernetes.io/pid-pressure",
  "node.kubernetes.io/network-unavailable",
  "node.cloudprovider.kubernetes.io/uninitialized",
]);

/** Of an actor, or of a Template's trial runs. */
export function requirementsOf(template: Template | undefined, actor?: Actor): NodeRequirements {
  const selectors = [template?.spec.nodeSelector, actor?.spec.nodeSelector];
  return {
    selectors: selectors.filter((selector) => selector !== undefined),
    tolerations: template?.spec.tolerations ?? [],
  };
}

/** `undefined` for a node object that isn't there. In a cluster without any Node objects no node needs one. */
export function traitsOf(node: Node | undefined, hasNodes: boolean): NodeTraits {
  const ready = node?.status?.conditions?.find(({ type }) => type === "Ready");
  const gone = node === undefined && hasNodes;
  const notReady = ready !== undefined && ready.status !== "True";
  return {
    labels: node?.metadata.labels ?? {},
    taints: node?.spec?.taints ?? [],
    unschedulable: node?.spec?.unschedulable === true,
    trouble: gone ? "has no Node object any more" : notReady ? "is not Ready" : undefined,
  };
}

/** As a pod's: an absent key with Exists takes every taint, an absent effect every effect; Equal when it says nothing. */
export function tolerates({ effect, key = "", operator = "Equal", value = "" }: Toleration, taint: Taint): boolean {
  if (effect !== undefined && effect !== taint.effect) return false;
  if (key !== "" && key !== taint.key) return false;
  if (operator === "Exists") return true;
  return key !== "" && value === (taint.value ?? "");
}

/** Why the actor may not be placed on the node; undefined when it may. */
export function exclusionOf(node: NodeTraits, requirements: NodeRequirements): Exclusion | undefined {
  const { selectors, tolerations } = requirements;
  for (const selector of selectors) {
    for (const [key, value] of Object.entries(selector)) {
      if (node.labels[key] === value) continue;
      return { kind: "selector", text: `lacks label ${key}=${value} of its nodeSelector`, deliberate: true };
    }
  }
  const isTolerated = (taint: Taint): boolean => tolerations.some((toleration) => tolerates(toleration, taint));
  if (node.unschedulable && !isTolerated(cordon)) return { kind: "cordoned", text: "is cordoned", deliberate: true };
  // its taint comes a moment before or after
  const hard = node.taints.filter(({ effect, key }) => effect !== "PreferNoSchedule" && key !== cordon.key);
  const found = hard.find((taint) => !conditionTaints.has(taint.key) && !isTolerated(taint));
  if (found !== undefined) {
    return { kind: "taint", text: `has taint ${taintText(found)}, which is not tolerated`, deliberate: true };
  }
  if (node.trouble !== undefined) return { kind: "not-ready", text: node.trouble, deliberate: false };
  const passing = hard.find((taint) => conditionTaints.has(taint.key) && !isTolerated(taint));
  if (passing === undefined) return undefined;
  return { kind: "not-ready", text: `has taint ${taintText(passing)}`, deliberate: false };
}

/** How many of its taints ask to take another node if there is one. */
export function reluctance(node: NodeTraits, { tolerations }: NodeRequirements): number {
  const soft = node.taints.filter(({ effect }) => effect === "PreferNoSchedule");
  return soft.filter((taint) => !tolerations.some((toleration) => tolerates(toleration, taint))).length;
}

function taintText({ effect, key, value }: Taint): string {
  return `${key}${value === undefined || value === "" ? "" : `=${value}`}:${effect}`;
}
