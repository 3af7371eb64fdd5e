import { type Exclusion, exclusionOf, type NodeRequirements, type NodeTraits, reluctance } from "./scheduling.ts";

/** What the operator knows of a node when it looks for a place; its figures are a hint, only the atelet grants room. */
export interface PlacementNode extends NodeTraits {
  nodeName: string;
  /** The atelet answers and its session is known. */
  reachable: boolean;
  limitBytes: number;
  bookedBytes: number;
  reserveBytes: number;
}

export interface PlacementRequest {
  /** The actor's booking: the program's limit plus the runtime's overhead. */
  bookingBytes: number;
  /** The node that has the newest generation's files, if one does. */
  snapshotNode: string | undefined;
  /** Nodes that refused for want of room within this wake. */
  refusedBy: ReadonlySet<string>;
  requirements: NodeRequirements;
}

/** What the runtime needs on top of the program's limit (measured 16–23 MiB, booked with a margin). */
const runtimeOverheadBytes = 32 * 1024 ** 2;

export function bookingBytes(memoryBytes: number): number {
  return memoryBytes + runtimeOverheadBytes;
}

function roomBytes(node: PlacementNode): number {
  return node.limitBytes - node.reserveBytes - node.bookedBytes;
}

/** Why nothing new may come to the node; undefined when it may, room aside. */
export function closedTo(node: PlacementNode, requirements: NodeRequirements): Exclusion | undefined {
  if (!node.reachable) return { kind: "unreachable", text: "does not answer", deliberate: false };
  return exclusionOf(node, requirements);
}

/**
 * Nodes to try, best first: those where the actor fits before those where it doesn't seem to; then those without a
 * taint that asks for another one; then the one that has the snapshot; else the emptiest.
 */
export function candidates(nodes: readonly PlacementNode[], request: PlacementRequest): PlacementNode[] {
  const { requirements, refusedBy, snapshotNode } = request;
  const usable = nodes.filter((node) => !refusedBy.has(node.nodeName) && closedTo(node, requirements) === undefined);
  const fits = (node: PlacementNode): number => Number(roomBytes(node) >= request.bookingBytes);
  const hasSnapshot = (node: PlacementNode): number => Number(node.nodeName === snapshotNode);
  return usable.toSorted(
    (a, b) =>
      fits(b) - fits(a) ||
      reluctance(a, requirements) - reluctance(b, requirements) ||
      hasSnapshot(b) - hasSnapshot(a) ||
      roomBytes(b) - roomBytes(a) ||
      a.nodeName.localeCompare(b.nodeName),
  );
}

/** The nodes' figures with what placements that are still under way will book. */
export function afterPromises(
  nodes: readonly PlacementNode[],
  promises: ReadonlyMap<string, { nodeName: string; bytes: number }>,
): PlacementNode[] {
  return nodes.map((node) => {
    const promised = [...promises.values()].filter(({ nodeName }) => nodeName === node.nodeName);
    return { ...node, bookedBytes: promised.reduce((sum, { bytes }) => sum + bytes, node.bookedBytes) };
  });
}

const mebibyte = 1024 ** 2;

const fixes: Record<Exclusion["kind"], string> = {
  unreachable: "check the atelets that do not answer",
  "not-ready": "look at the Nodes that are not well (kubectl get nodes)",
  cordoned: "uncordon a node (kubectl uncordon NODE)",
  selector: "label a node, or change the nodeSelector of the Actor or its Template",
  taint: "take the taint off a node, or add a toleration to the Template",
};

const counted = (count: number): string => `${count} node${count === 1 ? "" : "s"}`;

/** Why no node took the actor, for a condition and the error. */
export interface Shortfall {
  reason: "NoNode" | "NoRoom";
  message: string;
}

export function shortfall(nodes: readonly PlacementNode[], request: PlacementRequest): Shortfall {
  if (nodes.length === 0) return { reason: "NoNode", message: "no node has registered: start an atelet" };
  const closed = nodes.flatMap((node) => closedTo(node, request.requirements) ?? []);
  const open = nodes.filter((node) => closedTo(node, request.requirements) === undefined);
  const excluded = summary(closed);
  if (open.length === 0) {
    const advice = [...new Set(closed.map(({ kind }) => fixes[kind]))].join(", or ");
    return { reason: "NoNode", message: `none of ${counted(nodes.length)} may take it (${excluded}): ${advice}` };
  }
  const best = Math.max(...open.map(roomBytes));
  const missing = Math.ceil((request.bookingBytes - best) / mebibyte);
  const need = Math.ceil(request.bookingBytes / mebibyte);
  const what = `needs ${need} MiB (its limit and ${runtimeOverheadBytes / mebibyte} MiB for the runtime)`;
  const others = closed.length === 0 ? "" : ` (of the others ${excluded})`;
  const advice = "suspend other actors, lower the Template's memory or add a node";
  const why =
    missing > 0
      ? `${missing} MiB more than the emptiest of ${counted(open.length)} has free`
      : `refused by ${counted(open.length)} for want of room`;
  return { reason: "NoRoom", message: `${what}, ${why}${others}: ${advice}` };
}

/** How many different reasons are told at most. */
const maxReasons = 5;

/** As in "1 lacks label disk=ssd of its nodeSelector, 2 are cordoned". */
function summary(closed: readonly Exclusion[]): string {
  const counts = new Map<string, number>();
  for (const { text } of closed) counts.set(text, (counts.get(text) ?? 0) + 1);
  const told = [...counts].toSorted(([, a], [, b]) => b - a).slice(0, maxReasons);
  const left = closed.length - told.reduce((sum, [, count]) => sum + count, 0);
  const texts = told.map(([text, count]) => `${count} ${count === 1 ? text : plural(text)}`);
  return [...texts, ...(left === 0 ? [] : [`${left} for other reasons`])].join(", ");
}

const plurals: Readonly<Record<string, string>> = { is: "are", has: "have", lacks: "lack", does: "do" };

function plural(text: string): string {
  return text.replace(/^\w+/, (verb) => plurals[verb] ?? verb);
}
