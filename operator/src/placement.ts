/** What the operator knows of a node when it looks for a place; its figures are a hint, only the atelet grants room. */
export interface PlacementNode {
  nodeName: string;
  /** The atelet answers and its session is known. */
  reachable: boolean;
  /** Cordoned: takes no new actors. */
  unschedulable: boolean;
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
}

/** What the runtime needs on top of the program's limit (measured 16–23 MiB, booked with a margin). */
const runtimeOverheadBytes = 32 * 1024 ** 2;

export function bookingBytes(memoryBytes: number): number {
  return memoryBytes + runtimeOverheadBytes;
}

function roomBytes(node: PlacementNode): number {
  return node.limitBytes - node.reserveBytes - node.bookedBytes;
}

/**
 * Nodes to try, best first: those where the actor fits before those where it doesn't seem to; then the one that has
 * the snapshot; else the emptiest.
 */
export function candidates(nodes: readonly PlacementNode[], request: PlacementRequest): PlacementNode[] {
  const usable = nodes.filter((node) => node.reachable && !node.unschedulable && !request.refusedBy.has(node.nodeName));
  const fits = (node: PlacementNode): number => Number(roomBytes(node) >= request.bookingBytes);
  const hasSnapshot = (node: PlacementNode): number => Number(node.nodeName === request.snapshotNode);
  return usable.toSorted(
    (a, b) =>
      fits(b) - fits(a) ||
      hasSnapshot(b) - hasSnapshot(a) ||
      roomBytes(b) - roomBytes(a) ||
      a.nodeName.localeCompare(b.nodeName),
  );
}

const mebibyte = 1024 ** 2;

/** Why no node took the actor, with the shortfall, for the condition Scheduled and the error. */
export function shortfall(nodes: readonly PlacementNode[], request: PlacementRequest): string {
  const reachable = nodes.filter((node) => node.reachable);
  const open = reachable.filter((node) => !node.unschedulable);
  if (nodes.length === 0) return "no node has registered: start an atelet";
  if (reachable.length === 0) return `none of ${nodes.length} node(s) can be reached: check their atelets`;
  if (open.length === 0) return `all ${reachable.length} reachable node(s) are cordoned: uncordon one`;
  const best = Math.max(...open.map(roomBytes));
  const missing = Math.ceil((request.bookingBytes - best) / mebibyte);
  const need = Math.ceil(request.bookingBytes / mebibyte);
  const what = `needs ${need} MiB (its limit and ${runtimeOverheadBytes / mebibyte} MiB for the runtime)`;
  const advice = "suspend other actors, lower the Template's memory or add a node";
  return missing > 0
    ? `${what}, ${missing} MiB more than the emptiest of ${open.length} node(s) has free: ${advice}`
    : `${what}, refused by ${open.length} node(s) for want of room: ${advice}`;
}
