import { type ChannelCredentials } from "@grpc/grpc-js";
import { type Leader, type NodeReport } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { type ActorKey, type ActorReport } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type KubeObject } from "@substrate/lib/kube/client.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Lease, type Node } from "@substrate/lib/kube/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type NodeView } from "./actor-world.ts";
import { type AteletLease, AteletLink } from "./atelet-link.ts";
import { unknownNode } from "./generations.ts";
import { LeaseClock } from "./lease-clock.ts";
import { absenceText } from "./node-absence.ts";
import { NodeChanges } from "./node-changes.ts";
import { NodeTroubles } from "./node-troubles.ts";
import { type PlacementNode } from "./placement.ts";
import { type NodeTraits, traitsOf } from "./scheduling.ts";
import { type EventFacts } from "./status-events.ts";

export const ateletSelector = "substrate.run/part=atelet";

export interface AteletsOptions {
  leases: Reflector<Lease>;
  nodes: Reflector<Node>;
  credentials: ChannelCredentials;
  leader: () => Leader;
  log: Logger;
  /** A node that doesn't answer is lost when its Lease was not renewed for so long, either. */
  lostAfterMs: number;
  onActor: (actor: ActorKey) => void;
  /** A node came, went, has another session, or others may be placed there than before. */
  onNode: (nodeName: string) => void;
  /** What a person should hear of; about the Node, or its atelet's Lease where there are no Nodes. */
  onTrouble: (about: KubeObject, facts: EventFacts) => void;
}

/** A Lease of 30 s that was renewed each 10 s: longer ago means that something is the matter. */
const renewsWithinMs = 15_000;

/** A node's room, and whether this operator reaches its atelet; the figures are there while it does. */
export interface NodeUsage {
  metadata: { name: string };
  address: string;
  runtime: string;
  reachable: boolean;
  /** It has been silent for so long that its actors are said to be lost with it. */
  lost: boolean;
  unschedulable: boolean;
  /** Why the Node is none for new actors, beside a cordon: it is not Ready, or gone. */
  trouble?: string;
  actors: number;
  running: number;
  limitBytes?: number;
  bookedBytes?: number;
  lentBytes?: number;
  reserveBytes?: number;
  /** Lent to sandboxes that wait for an actor. */
  warmBytes?: number;
  /** Of the reserve: what uploads and downloads hold. */
  transferBytes?: number;
  /** Wakes that wait for room. */
  waiting?: number;
  /** Stores that it cannot use, and why. */
  stores?: { name: string; message: string }[];
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
  /** Lost, and not heard of since. */
  readonly #lost = new Set<string>();
  readonly #clock: LeaseClock;
  readonly #changes = new NodeChanges();
  readonly #troubles = new NodeTroubles();
  #open = false;

  constructor(options: AteletsOptions) {
    this.#options = options;
    this.#clock = new LeaseClock(options.leases);
    options.leases.onChange((key, lease, before) => {
      // keys are <namespace>/<name>; a Lease is named as its node
      const nodeName = key.slice(key.indexOf("/") + 1);
      if (lease !== undefined && lease.spec?.renewTime !== before?.spec?.renewTime) this.#lost.delete(nodeName);
      this.#clock.observe(nodeName, lease && `${lease.spec?.holderIdentity ?? ""} ${lease.spec?.renewTime ?? ""}`);
      this.#refresh(nodeName);
    });
    options.nodes.onChange((nodeName, now, before) => {
      const traits = (node: Node | undefined): string => JSON.stringify(traitsOf(node, true));
      if (traits(now) !== traits(before)) this.#changed(nodeName);
    });
  }

  open(): void {
    this.#open = true;
    this.#clock.restart();
    this.#lost.clear();
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

  /** Throws NODE_UNAVAILABLE, or NODE_LOST, when the node's atelet does not answer or has not said all yet. */
  require(nodeName: string): AteletLink {
    const link = this.#links.get(nodeName);
    if (link?.view().synced === true) return link;
    throw this.#unavailable(nodeName);
  }

  view(nodeName: string): NodeView {
    const link = this.#links.get(nodeName);
    const view = link?.view() ?? this.#missing(nodeName);
    if (view.synced) return view;
    const lostInMs = this.#lostInMs(nodeName, view.unreachableMs);
    return lostInMs > 0 ? { ...view, lostInMs } : { ...view, lost: this.absence(nodeName) ?? `node ${nodeName}` };
  }

  /** Why a node cannot be asked, for a person; undefined when it can. */
  absence(nodeName: string): string | undefined {
    const link = this.#links.get(nodeName);
    const view = link?.view();
    if (view?.synced === true) return undefined;
    const { nodes } = this.#options;
    // since it has been silent, that is: an earlier renewal says nothing of what it does now
    const sinceRenewalMs = this.#clock.sinceRenewalMs(nodeName) ?? Number.POSITIVE_INFINITY;
    return absenceText({
      nodeName,
      address: link?.lease.address,
      renews: view !== undefined && sinceRenewalMs < Math.min(renewsWithinMs, view.unreachableMs),
      node: nodes.byKey(nodeName),
      hasNodes: nodes.list().length > 0,
    });
  }

  /** Resolves when something about the node, or without a name about any node, has changed, at the latest in `timeoutMs`. */
  async nextChange(nodeName: string | undefined, timeoutMs: number): Promise<void> {
    await this.#changes.next(nodeName, timeoutMs);
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
      const traits = this.traits(nodeName);
      return {
        metadata: { name: nodeName },
        address,
        runtime,
        reachable: link.view().synced,
        lost: this.view(nodeName).lost !== undefined,
        unschedulable: traits.unschedulable,
        ...(traits.trouble === undefined ? {} : { trouble: traits.trouble }),
        ...link.actors(),
        ...(node && {
          limitBytes: Number(node.limitBytes),
          bookedBytes: Number(node.bookedBytes),
          lentBytes: Number(node.lentBytes),
          reserveBytes: Number(node.reserveBytes),
          warmBytes: Number(node.warmBytes),
          transferBytes: Number(node.transferBytes),
          waiting: node.waiting,
          stores: node.stores.map(({ name, message }) => ({ name, message })),
        }),
      };
    });
  }

  traits(nodeName: string): NodeTraits {
    const { nodes } = this.#options;
    return traitsOf(nodes.byKey(nodeName), nodes.list().length > 0);
  }

  placementNodes(): PlacementNode[] {
    return [...this.#links.values()].map((link) => {
      const { nodeName } = link.lease;
      const figures = link.node;
      return {
        ...this.traits(nodeName),
        nodeName,
        reachable: figures !== undefined,
        limitBytes: Number(figures?.limitBytes ?? 0n),
        bookedBytes: Number(figures?.bookedBytes ?? 0n),
        reserveBytes: Number(figures?.reserveBytes ?? 0n),
      };
    });
  }

  #unavailable(nodeName: string): SubstrateError {
    const { lost } = this.view(nodeName);
    if (lost !== undefined) {
      const message = `its node is lost: it waits for ${lost}; bring that node back, as nothing moves by itself`;
      return new SubstrateError("NODE_LOST", message, { retryAfterMs: 10_000 });
    }
    const message = `it waits for ${this.absence(nodeName) ?? `node ${nodeName}`}; it goes on there when that is back`;
    return new SubstrateError("NODE_UNAVAILABLE", message, { retryAfterMs: 5_000 });
  }

  #missing(nodeName: string): Pick<NodeView, "nodeName" | "synced" | "unreachableMs"> {
    const since = this.#missingSinceMs.get(nodeName) ?? performance.now();
    this.#missingSinceMs.set(nodeName, since);
    return { nodeName, synced: false, unreachableMs: performance.now() - since };
  }

  /** Until a node that doesn't answer is lost; 0 when it is, until it is heard of again. */
  #lostInMs(nodeName: string, unreachableMs: number): number {
    if (this.#lost.has(nodeName)) return 0;
    const silentMs = Math.min(unreachableMs, this.#clock.silentMs(nodeName));
    const lostInMs = Math.max(0, this.#options.lostAfterMs - silentMs);
    if (lostInMs === 0 && this.#open) {
      this.#lost.add(nodeName);
      this.#options.log.warn("node is lost", { node: nodeName, why: this.absence(nodeName) });
    }
    return lostInMs;
  }

  #changed(nodeName: string): void {
    if (this.#links.get(nodeName)?.view().synced === true && this.#lost.delete(nodeName)) {
      this.#options.log.info("node is back", { node: nodeName });
    }
    this.#changes.notify(nodeName);
    this.#options.onNode(nodeName);
  }

  #heard(nodeName: string, report: NodeReport): void {
    const { nodes, leases, onTrouble } = this.#options;
    const facts = this.#troubles.fresh(nodeName, report);
    const about = nodes.byKey(nodeName) ?? leases.list().find(({ metadata }) => metadata.name === nodeName);
    if (about !== undefined) for (const one of facts) onTrouble(about, one);
  }

  #refresh(nodeName: string): void {
    if (!this.#open) return;
    const { leases, credentials, leader, log, onActor } = this.#options;
    const found = leases.list().find((lease) => lease.metadata.name === nodeName);
    const lease = found === undefined ? undefined : readLease(found);
    const link = this.#links.get(nodeName);
    if (link !== undefined && lease?.address === link.lease.address) {
      const changed = lease.session !== link.lease.session || lease.bootId !== link.lease.bootId;
      link.lease = lease;
      if (changed) this.#changed(nodeName);
      return;
    }
    link?.close();
    this.#links.delete(nodeName);
    if (lease !== undefined) {
      this.#missingSinceMs.delete(nodeName);
      const changed = (): void => {
        this.#changed(nodeName);
      };
      const onReport = (report: NodeReport): void => {
        this.#heard(nodeName, report);
      };
      this.#links.set(
        nodeName,
        new AteletLink({ lease, credentials, leader, log, onActor, onNode: changed, onReport }),
      );
    }
    this.#changed(nodeName);
  }
}
