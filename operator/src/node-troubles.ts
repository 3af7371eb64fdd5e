import { type NodeReport, type NodeTrouble } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { type EventReason } from "./reasons.ts";
import { type EventFacts } from "./status-events.ts";

/** What nodes may say (atelet/src/troubles.ts). */
const nodeReasons: readonly EventReason[] = ["SnapshotNotOnDisk", "DiskTight"];

/** What nodes count of what a person should hear of, turned into Events: one whenever a count has risen. */
export class NodeTroubles {
  readonly #counts = new Map<string, { bootId: string; counts: Map<string, bigint> }>();

  /** @returns what this report says that none before it has said. */
  fresh(nodeName: string, { bootId, troubles }: Pick<NodeReport, "bootId" | "troubles">): EventFacts[] {
    const known = this.#counts.get(nodeName);
    const before = known?.bootId === bootId ? known.counts : new Map<string, bigint>();
    this.#counts.set(nodeName, { bootId, counts: new Map(troubles.map(({ reason, count }) => [reason, count])) });
    return troubles.filter(({ reason, count }) => count > (before.get(reason) ?? 0n)).flatMap(eventOf);
  }
}

/** A newer node's reason that this operator does not know is in that node's log. */
function eventOf({ reason, message }: NodeTrouble): EventFacts[] {
  const known = nodeReasons.find((candidate) => candidate === reason);
  return known === undefined ? [] : [{ type: "Warning", reason: known, message }];
}
