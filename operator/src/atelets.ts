import { type ChannelCredentials } from "@grpc/grpc-js";
import { type Leader } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { type ActorKey, type ActorReport } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Lease, type Node } from "@substrate/lib/kube/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type NodeView } from "./actor-world.ts";
import { type AteletLease, AteletLink } from "./atelet-link.ts";
import { unknownNode } from "./generations.ts";
import { type PlacementNode } from "./placement.ts";

export const ateletSelector = "substrate.run/part=atelet";

export interface AteletsOptions {
  leases: Reflector<Lease>;
  nodes: Reflector<Node>;
  credentials: ChannelCredentials;
  leader: () => Leader;
  log: Logger;
  onActor: (actor: ActorKey) => void;
  /** A node came, went, was cordoned or has another session. */
  onNode: (nodeName: string) => void;
}

/** A node's room, and whether this operator reaches its atelet; the figures are there while it does. */
export interface NodeUsage {
  metadata: { name: string };
  address: string;
  runtime: string;
  reachable: boolean;
  unschedulable: boolean;
  actors: number;
  running: number;
  limitBytes?: number;
  bookedBytes?: number;
  lentBytes?: number;
  reserveBytes?: number;
}

function readLease(lease: Lease): AteletLease | undefined {
  const annotations = lease.metadata.annotations ?? {};
  const address = annotations["substrate.run/address"];
  const session = lease.spec?.holderIdentity;
  if (address === undefined || session === undefined || session === "") return undefined;
  return {
    nodeName: lease.metadata.name,
    address,
    session,
    bootId: annotations["substrate.run/boot-id"] ?? "",
    runtime: annotations["substrate.run/runtime"] ?? "",
  };
}

/** The atelets that have registered by a Lease, each with its connection; only while this operator leads. */
export class Atelets {
  readonly #options: AteletsOptions;
  readonly #links = new Map<string, AteletLink>();
  readonly #missingSinceMs = new Map<string, number>();
  #open = false;

  constructor(options: AteletsOptions) {
    this.#options = options;
    options.leases.onChange((key) => {
      // keys are <namespace>/<name>; a Lease is named as its node
      this.#refresh(key.slice(key.indexOf("/") + 1));
    });
    options.nodes.onChange((nodeName, now, before) => {
      if (now?.spec?.unschedulable !== before?.spec?.unschedulable) options.onNode(nodeName);
    });
  }

  open(): void {
    this.#open = true;
    for (const lease of this.#options.leases.list()) this.#refresh(lease.metadata.name);
  }

  close(): void {
    this.#open = false;
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
  }

  get(nodeName: string): AteletLink | undefined {
    return this.#links.get(nodeName);
  }

  /** Throws NODE_UNAVAILABLE when the node has no atelet. */
  require(nodeName: string): AteletLink {
    const link = this.#links.get(nodeName);
    if (link !== undefined) return link;
    const message = `node ${nodeName} has no atelet now (no Lease of that name); start it, the actor's state is there`;
    throw new SubstrateError("NODE_UNAVAILABLE", message, { retryAfterMs: 5_000 });
  }

  view(nodeName: string): NodeView {
    const link = this.#links.get(nodeName);
    if (link !== undefined) return link.view();
    const since = this.#missingSinceMs.get(nodeName) ?? performance.now();
    this.#missingSinceMs.set(nodeName, since);
    return { nodeName, synced: false, unreachableMs: performance.now() - since };
  }

  /** Why a node cannot be asked, for a person; undefined when it can. */
  absence(nodeName: string): string | undefined {
    const link = this.#links.get(nodeName);
    if (link?.view().synced === true) return undefined;
    if (link !== undefined) return `node ${nodeName}, whose atelet does not answer`;
    const gone = this.#options.nodes.byKey(nodeName) === undefined;
    return gone ? `node ${nodeName}, which is gone (no Node, no atelet)` : `node ${nodeName}, which has no atelet now`;
  }

  report(nodeName: string, uid: string): ActorReport | undefined {
    return this.#links.get(nodeName)?.report(uid);
  }

  /** A node's refusal of this term when no node at all takes orders under it; undefined while one does. */
  problem(term: bigint): string | undefined {
    const links = [...this.#links.values()];
    const refusals = links.map((link) => link.refusal(term));
    if (links.some((link, index) => link.view().synced && refusals[index] === undefined)) return undefined;
    return refusals.find((refusal) => refusal !== undefined);
  }

  /** Any node that answers; for what every node can do. */
  anyReachable(): AteletLink | undefined {
    return [...this.#links.values()].find((link) => link.view().synced);
  }

  /** A node that may take new work: it answers and isn't cordoned. */
  anySchedulable(): AteletLink | undefined {
    return [...this.#links.values()].find((link) => link.view().synced && !this.#unschedulable(link.lease.nodeName));
  }

  /** Builds of the sandbox runtime on the nodes that answer. */
  runtimes(): Set<string> {
    return new Set([...this.#links.values()].flatMap((link) => link.node?.runtime ?? []));
  }

  /** The node with a generation's files; `unknownNode` while `hint`, the node last known to have them, isn't synced. */
  localNode(uid: string, generation: number, hint: string | undefined): string | undefined {
    for (const [nodeName, link] of this.#links) {
      const found = link.report(uid)?.generations.find((entry) => Number(entry.generation) === generation);
      if (found?.local === true) return nodeName;
    }
    if (hint !== undefined && !this.view(hint).synced) return unknownNode;
    return undefined;
  }

  /** The highest epoch that any node has recorded for the actor; 0 if none. */
  highestEpoch(uid: string): number {
    return Math.max(0, ...[...this.#links.values()].map((link) => Number(link.report(uid)?.grant?.epoch ?? 0n)));
  }

  /** Every node that has an atelet, for people. */
  usage(): NodeUsage[] {
    return [...this.#links.values()].map((link) => {
      const { nodeName, runtime, address } = link.lease;
      const { node } = link;
      return {
        metadata: { name: nodeName },
        address,
        runtime,
        reachable: link.view().synced,
        unschedulable: this.#unschedulable(nodeName),
        ...link.actors(),
        ...(node && {
          limitBytes: Number(node.limitBytes),
          bookedBytes: Number(node.bookedBytes),
          lentBytes: Number(node.lentBytes),
          reserveBytes: Number(node.reserveBytes),
        }),
      };
    });
  }

  placementNodes(): PlacementNode[] {
    return [...this.#links.values()].map((link) => {
      const { nodeName } = link.lease;
      const figures = link.node;
      return {
        nodeName,
        reachable: figures !== undefined,
        unschedulable: this.#unschedulable(nodeName),
        limitBytes: Number(figures?.limitBytes ?? 0n),
        bookedBytes: Number(figures?.bookedBytes ?? 0n),
        reserveBytes: Number(figures?.reserveBytes ?? 0n),
      };
    });
  }

  #unschedulable(nodeName: string): boolean {
    return this.#options.nodes.byKey(nodeName)?.spec?.unschedulable === true;
  }

  #refresh(nodeName: string): void {
    if (!this.#open) return;
    const { leases, credentials, leader, log, onActor, onNode } = this.#options;
    const found = leases.list().find((lease) => lease.metadata.name === nodeName);
    const lease = found === undefined ? undefined : readLease(found);
    const link = this.#links.get(nodeName);
    if (link !== undefined && lease?.address === link.lease.address) {
      const changed = lease.session !== link.lease.session || lease.bootId !== link.lease.bootId;
      link.lease = lease;
      if (changed) onNode(nodeName);
      return;
    }
    link?.close();
    this.#links.delete(nodeName);
    if (lease !== undefined) {
      this.#missingSinceMs.delete(nodeName);
      const changed = (): void => {
        onNode(nodeName);
      };
      this.#links.set(nodeName, new AteletLink({ lease, credentials, leader, log, onActor, onNode: changed }));
    }
    onNode(nodeName);
  }
}
