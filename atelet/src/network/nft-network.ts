import { mkdirSync, readdirSync, rmdirSync } from "node:fs";
import { randomInt } from "node:crypto";
import { isIPv4 } from "node:net";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { indexOf, indexOfAddress, linkNameOf, maxIndex, nodeAddressOf } from "./interior.ts";
import { type KernelState, readKernelState } from "./kernel-state.ts";
import { type TupleSide } from "./conntrack.ts";
import { KernelLane } from "./lane.ts";
import { type ActorNetwork, type PublishedPort, type SleepingImage, type Slot } from "./network.ts";
import { markOf, MAX_PARKED, type Parked, ParkedAddresses, readMark } from "./parked.ts";
import { ReadyPool } from "./pool.ts";
import { OuterPorts } from "./ports.ts";
import { readResolvers } from "./resolvers.ts";
import * as rules from "./ruleset.ts";

export interface NftActorNetworkOptions {
  /**
   * Folder for the bind mounts of the slots' namespaces; a place private to this mount namespace that is empty after a
   * restart of the node (they do not survive one).
   */
  dir: string;
  podInterface: string;
  podAddress: string;
  denyCidrs: readonly string[];
  /** How many slots are kept ready. */
  poolSize: number;
  /** Ports on which this pod itself listens: never given to an actor. */
  reservedPorts: readonly number[];
  /** See FORGET_AFTER_MS, the default. */
  forgetAfterMs?: number;
  log: Logger;
}

/**
 * How long after an actor fell asleep the kernel forgets what routers began with it: of all that did meanwhile at once.
 * Long before its outer ports are used again (portRestSeconds).
 */
const FORGET_AFTER_MS = 5000;

/**
 * Forwarding between pod and slots; rewritten addresses must not meet the reverse-path check. Every packet of a peer of
 * a sleeping actor gets its answer. A stack that was asleep for long sends what tracking would no longer take for its.
 */
const sysctls = {
  "net/ipv4/ip_forward": "1",
  "net/ipv4/conf/all/rp_filter": "0",
  "net/ipv4/conf/default/rp_filter": "0",
  "net/ipv4/conf/all/send_redirects": "0",
  "net/ipv4/conf/default/send_redirects": "0",
  "net/ipv4/icmp_ratelimit": "0",
  "net/netfilter/nf_conntrack_tcp_be_liberal": "1",
};

/** The actors' network by nftables, veth pairs and namespaces; see ruleset.ts for what passes. */
export class NftActorNetwork implements ActorNetwork {
  readonly #options: NftActorNetworkOptions;
  readonly #log: Logger;
  /** Rules and addresses: what a wake waits for. */
  readonly #quick = new KernelLane();
  /** Links and namespaces, whose locks may take tens of milliseconds. */
  readonly #slow = new KernelLane();
  readonly #ports: OuterPorts;
  readonly #pool: ReadyPool<Slot>;
  /** Node addresses of all slots that exist, ready ones included, by index; one whose address was parked has none. */
  readonly #addresses = new Map<number, string | undefined>();
  readonly #parked = new ParkedAddresses(MAX_PARKED);
  readonly #published = new Map<number, rules.Mapping[]>();
  /** Node addresses of actors that fell asleep, with the outer ports that they had then. */
  #toForget = new Map<string, number[]>();
  #forgetting: NodeJS.Timeout | undefined;
  #lastIndex = randomInt(maxIndex);
  #mtu = 0;
  #routersBefore: readonly string[] = [];

  constructor(options: NftActorNetworkOptions) {
    if (/^a\d*$/.test(options.podInterface)) {
      throw new SubstrateError(
        "INVALID",
        `the pod's interface "${options.podInterface}" is named like an actor's link`,
      );
    }
    this.#options = options;
    this.#log = options.log;
    this.#ports = new OuterPorts(options.reservedPorts);
    this.#pool = new ReadyPool(options.poolSize, () => this.#create(), options.log);
  }

  async start(keep: Parameters<ActorNetwork["start"]>[0]): Promise<void> {
    const { dir, podInterface, podAddress, denyCidrs } = this.#options;
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.#mtu = await this.#slow.call(`pod interface ${podInterface}`, "linkMtu", podInterface);
    const resolvers = readResolvers(this.#log);
    const ruleset = rules.renderRuleset({ podInterface, podAddress, denyCidrs, resolvers });
    await this.#quick.call("the actors' nftables table", "nft", ruleset);
    // tracking's own are there only once the table has asked for it
    await this.#slow.call("network settings of the pod", "sysctl", sysctls);
    await this.#takeOver(keep);
    this.#pool.fill();
  }

  acquire(): Promise<Slot> {
    return this.#pool.take();
  }

  adopt(index: number): Slot {
    const nodeAddress = this.#addresses.get(index);
    if (nodeAddress === undefined) {
      throw new SubstrateError("INTERNAL", `network slot ${index} is not in the kernel any more: delete its sandbox`);
    }
    return this.#slot(index, nodeAddress);
  }

  async release(slot: Slot): Promise<void> {
    await this.#destroySlot(slot.index);
    this.#pool.fill();
  }

  get parkedCount(): number {
    return this.#parked.count;
  }

  async park({ index }: Slot, image: SleepingImage): Promise<void> {
    const nodeAddress = this.#addresses.get(index);
    if (nodeAddress === undefined) throw new SubstrateError("INTERNAL", `network slot ${index} has no address to park`);
    const published = this.#published.get(index) ?? [];
    await this.#unpublish(index);
    // Their peers, the routers, have let them go, and their outer ports will be another actor's one day.
    if (published.length > 0) this.#forgetLater(nodeAddress, published);
    const mark = markOf(image, this.#options.podAddress, Date.now());
    await this.#nft(index, "park the address of", rules.park(linkNameOf(index), nodeAddress, mark));
    this.#addresses.set(index, undefined);
    await this.#drop(this.#parked.add({ ...image, nodeAddress }));
  }

  async unpark({ index }: Slot, image: SleepingImage): Promise<Slot | undefined> {
    const parked = this.#parked.takeFor(image);
    if (parked === undefined) return undefined;
    const { nodeAddress } = parked;
    try {
      await this.#quick.call(`address of network slot ${index}`, "routeAddress", index, nodeAddress);
      await this.#nft(index, "unpark an address in", rules.unpark(linkNameOf(index), nodeAddress));
    } catch (error) {
      await this.#drop([parked]);
      throw error;
    }
    this.#addresses.set(index, nodeAddress);
    return this.#slot(index, nodeAddress);
  }

  async giveUp(actor: string): Promise<void> {
    const parked = this.#parked.take(actor);
    if (parked !== undefined) await this.#drop([parked]);
  }

  async putAddress(slot: Slot): Promise<void> {
    await this.#quick.call(`address of network slot ${slot.index}`, "putAddress", slot.netnsPath);
  }

  async publish(slot: Slot, containerPorts: readonly number[]): Promise<PublishedPort[]> {
    const before = this.#published.get(slot.index) ?? [];
    const mappings: rules.Mapping[] = [];
    const { nodeAddress } = slot;
    try {
      for (const containerPort of new Set(containerPorts)) {
        mappings.push({ outerPort: this.#ports.take(), nodeAddress, containerPort });
      }
      await this.#nft(slot.index, "publish", rules.unpublish(before) + rules.publish(mappings));
    } catch (error) {
      for (const { outerPort } of mappings) this.#ports.giveBack(outerPort);
      throw error;
    }
    for (const { outerPort } of before) this.#ports.giveBack(outerPort);
    this.#published.set(slot.index, mappings);
    return mappings.map(({ containerPort, outerPort }) => ({ containerPort, outerPort }));
  }

  published(slot: Slot): Promise<PublishedPort[]> {
    const mappings = this.#published.get(slot.index) ?? [];
    return Promise.resolve(mappings.map(({ containerPort, outerPort }) => ({ containerPort, outerPort })));
  }

  async unpublish(slot: Slot): Promise<void> {
    await this.#unpublish(slot.index);
  }

  async block({ index }: Slot): Promise<void> {
    await this.#nft(index, "block", rules.block(linkNameOf(index), this.#addresses.get(index)));
  }

  async open({ index, nodeAddress }: Slot): Promise<void> {
    const address = this.#addresses.get(index) ?? nodeAddress;
    await this.#nft(index, "open", rules.open(linkNameOf(index), address));
  }

  routersBefore(): readonly string[] {
    return this.#routersBefore;
  }

  async setRouters(addresses: readonly string[]): Promise<void> {
    const wrong = addresses.find((address) => !isIPv4(address));
    if (wrong !== undefined) throw new SubstrateError("INVALID", `router address "${wrong}" is not an IPv4 address`);
    await this.#quick.call("addresses of routers", "nft", rules.routers([...new Set(addresses)]));
  }

  async close(): Promise<void> {
    clearTimeout(this.#forgetting);
    await this.#pool.close();
    await Promise.all([this.#quick.close(), this.#slow.close()]);
  }

  async destroy(): Promise<void> {
    await this.#pool.close();
    for (const index of [...this.#addresses.keys()]) await this.#destroySlot(index);
    await this.#drop(this.#parked.keepOnly(new Set()));
    await this.#quick.call("the actors' nftables table", "nft", rules.removeTable());
    rmdirSync(this.#options.dir);
    await this.close();
  }

  #slot(index: number, nodeAddress: string): Slot {
    return { index, netnsPath: this.#netnsPath(index), nodeAddress };
  }

  #netnsPath(index: number): string {
    return join(this.#options.dir, String(index));
  }

  async #nft(index: number, verb: string, commands: string): Promise<void> {
    if (commands === "") return;
    await this.#quick.call(`${verb} network slot ${index}`, "nft", commands);
  }

  async #unpublish(index: number): Promise<void> {
    const mappings = this.#published.get(index) ?? [];
    await this.#nft(index, "unpublish", rules.unpublish(mappings));
    for (const { outerPort } of mappings) this.#ports.giveBack(outerPort);
    this.#published.delete(index);
  }

  async #forget(nodeAddress: string, sides: readonly TupleSide[]): Promise<void> {
    await this.#quick.call(`connections of ${nodeAddress}`, "forgetConnections", nodeAddress, sides);
  }

  #forgetLater(nodeAddress: string, published: readonly rules.Mapping[]): void {
    const ports = published.map(({ outerPort }) => outerPort);
    this.#toForget.set(nodeAddress, [...(this.#toForget.get(nodeAddress) ?? []), ...ports]);
    this.#forgetting ??= setTimeout(() => {
      this.#forgetting = undefined;
      const of = this.#toForget;
      this.#toForget = new Map();
      this.#forgetInbound(of).catch((error: unknown) => {
        this.#log.warn("connections to ports of sleeping actors could not be forgotten; they end by themselves", {
          error,
        });
      });
    }, this.#options.forgetAfterMs ?? FORGET_AFTER_MS).unref();
  }

  async #forgetInbound(of: ReadonlyMap<string, readonly number[] | undefined>): Promise<void> {
    if (of.size === 0) return;
    await this.#slow.call("connections of sleeping actors", "forgetInbound", this.#options.podAddress, of);
  }

  /** Its connections go first: what is tracked and asleep no more would be sent on. */
  async #drop(given: readonly Pick<Parked, "nodeAddress">[]): Promise<void> {
    for (const { nodeAddress } of given) {
      await this.#forget(nodeAddress, ["original", "reply"]);
      await this.#quick.call(`address ${nodeAddress} that was parked`, "nft", rules.wake(nodeAddress));
    }
  }

  /** Indices go round, so that an address rests long before it is used again. */
  #nextIndex(): number {
    const held = new Set([...this.#addresses.values()].map((address) => address && indexOfAddress(address)));
    for (let i = 0; i < maxIndex; i += 1) {
      this.#lastIndex = (this.#lastIndex % maxIndex) + 1;
      const index = this.#lastIndex;
      if (!this.#addresses.has(index) && !held.has(index) && !this.#parked.has(nodeAddressOf(index))) return index;
    }
    throw new SubstrateError("NO_ROOM", `all ${maxIndex} network slots of this node are in use`);
  }

  async #create(): Promise<Slot> {
    const index = this.#nextIndex();
    const slot = this.#slot(index, nodeAddressOf(index));
    const { nodeAddress, netnsPath } = slot;
    this.#addresses.set(index, nodeAddress);
    try {
      await this.#nft(index, "make", rules.addSlot(linkNameOf(index), nodeAddress));
      await this.#slow.call(`make network slot ${index}`, "createSlot", index, nodeAddress, netnsPath, this.#mtu);
    } catch (error) {
      await this.#destroySlot(index);
      throw error;
    }
    return slot;
  }

  async #destroySlot(index: number): Promise<void> {
    const link = linkNameOf(index);
    const nodeAddress = this.#addresses.get(index);
    await this.#nft(index, "block", rules.block(link, nodeAddress));
    await this.#unpublish(index);
    if (nodeAddress !== undefined) await this.#forget(nodeAddress, ["original", "reply"]);
    await this.#slow.call(`remove network slot ${index}`, "destroySlot", index, this.#netnsPath(index));
    await this.#nft(index, "remove", rules.removeSlot(link, nodeAddress));
    this.#addresses.delete(index);
  }

  async #takeOver(keep: { slots: readonly number[]; parked: readonly string[] }): Promise<void> {
    const listed = await this.#quick.call("the actors' nftables table", "nftList", `list table ip ${rules.tableName}`);
    const state = readKernelState(listed);
    for (const port of state.restingPorts) this.#ports.giveBack(port);
    this.#routersBefore = state.routers;
    await this.#takeOverParked(state, new Set(keep.parked));
    await this.#takeOverSlots(state, new Set(keep.slots));
  }

  async #takeOverParked({ asleep, sources }: KernelState, keep: ReadonlySet<string>): Promise<void> {
    const ofSlots = new Set(sources.values());
    const marked: (Parked & { sinceMs: number })[] = [];
    for (const [nodeAddress, mark] of asleep) {
      if (ofSlots.has(nodeAddress)) continue;
      const parked = mark === undefined ? undefined : readMark(mark);
      // Behind another address of the pod nobody would find it.
      if (parked?.podAddress === this.#options.podAddress) marked.push({ nodeAddress, ...parked });
      else await this.#drop([{ nodeAddress }]);
    }
    for (const { actor, generation, epoch, nodeAddress } of marked.sort((a, b) => a.sinceMs - b.sinceMs)) {
      await this.#drop(this.#parked.add({ actor, generation, epoch, nodeAddress }));
    }
    await this.#drop(this.#parked.keepOnly(keep));
    // The last atelet may have ended before it did this.
    await this.#forgetInbound(new Map(this.#parked.addresses().map((address) => [address, undefined])));
  }

  async #takeOverSlots(state: KernelState, keep: ReadonlySet<number>): Promise<void> {
    const links = await this.#slow.call("the actors' links", "slotIndices");
    const files = readdirSync(this.#options.dir).map((name) => indexOf(`a${name}`));
    // nft takes one command after the other: a kill in between leaves some of a slot's elements without the others
    const inRules = [...state.sources.keys(), ...state.blocked].map((link) => indexOf(link));
    const found = new Set([...links, ...files, ...inRules].filter((index) => index !== undefined));
    for (const index of found) this.#addresses.set(index, state.sources.get(linkNameOf(index)));
    for (const index of found) {
      const nodeAddress = this.#addresses.get(index);
      const mappings = state.mappings.filter((mapping) => mapping.nodeAddress === nodeAddress);
      for (const { outerPort } of mappings) this.#ports.adopt(outerPort);
      this.#published.set(index, mappings);
      const whole =
        links.includes(index) &&
        nodeAddress !== undefined &&
        (await this.#slow.call(`network slot ${index}`, "netnsUsable", this.#netnsPath(index)));
      if (keep.has(index) && whole) continue;
      if (keep.has(index)) this.#log.error("a network slot of a sandbox is not whole; removing it", { slot: index });
      await this.#destroySlot(index);
    }
  }
}
