import { mkdirSync, readdirSync, rmdirSync } from "node:fs";
import { randomInt } from "node:crypto";
import { isIPv4 } from "node:net";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { indexOf, linkNameOf, maxIndex, nodeAddressOf } from "./interior.ts";
import { readKernelState } from "./kernel-state.ts";
import { KernelLane } from "./lane.ts";
import { type ActorNetwork, type PublishedPort, type Slot } from "./network.ts";
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
  log: Logger;
}

/** Forwarding between pod and slots; rewritten addresses must not meet the reverse-path check. */
const sysctls = {
  "net/ipv4/ip_forward": "1",
  "net/ipv4/conf/all/rp_filter": "0",
  "net/ipv4/conf/default/rp_filter": "0",
  "net/ipv4/conf/all/send_redirects": "0",
  "net/ipv4/conf/default/send_redirects": "0",
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
  /** Indices of all slots that exist, ready ones included. */
  readonly #indices = new Set<number>();
  readonly #published = new Map<number, rules.Mapping[]>();
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

  async start(keep: readonly number[]): Promise<void> {
    const { dir, podInterface, podAddress, denyCidrs } = this.#options;
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.#mtu = await this.#slow.call(`pod interface ${podInterface}`, "linkMtu", podInterface);
    await this.#slow.call("network settings of the pod", "sysctl", sysctls);
    const resolvers = readResolvers(this.#log);
    const ruleset = rules.renderRuleset({ podInterface, podAddress, denyCidrs, resolvers });
    await this.#quick.call("the actors' nftables table", "nft", ruleset);
    await this.#takeOver(new Set(keep));
    this.#pool.fill();
  }

  acquire(): Promise<Slot> {
    return this.#pool.take();
  }

  adopt(index: number): Slot {
    if (!this.#indices.has(index)) {
      throw new SubstrateError("INTERNAL", `network slot ${index} is not in the kernel any more: delete its sandbox`);
    }
    return this.#slot(index);
  }

  async release(slot: Slot): Promise<void> {
    await this.#destroySlot(slot);
    this.#pool.fill();
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
    const mappings = this.#published.get(slot.index) ?? [];
    await this.#nft(slot.index, "unpublish", rules.unpublish(mappings));
    for (const { outerPort } of mappings) this.#ports.giveBack(outerPort);
    this.#published.delete(slot.index);
  }

  async block(slot: Slot): Promise<void> {
    await this.#nft(slot.index, "block", rules.block(linkNameOf(slot.index)));
  }

  async open(slot: Slot): Promise<void> {
    await this.#nft(slot.index, "open", rules.open(linkNameOf(slot.index)));
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
    await this.#pool.close();
    await Promise.all([this.#quick.close(), this.#slow.close()]);
  }

  async destroy(): Promise<void> {
    await this.#pool.close();
    for (const index of [...this.#indices]) await this.#destroySlot(this.#slot(index));
    await this.#quick.call("the actors' nftables table", "nft", rules.removeTable());
    rmdirSync(this.#options.dir);
    await this.close();
  }

  #slot(index: number): Slot {
    return { index, netnsPath: join(this.#options.dir, String(index)), nodeAddress: nodeAddressOf(index) };
  }

  async #nft(index: number, verb: string, commands: string): Promise<void> {
    if (commands === "") return;
    await this.#quick.call(`${verb} network slot ${index}`, "nft", commands);
  }

  /** Indices go round, so that an address rests long before it is used again. */
  #nextIndex(): number {
    for (let i = 0; i < maxIndex; i += 1) {
      this.#lastIndex = (this.#lastIndex % maxIndex) + 1;
      if (!this.#indices.has(this.#lastIndex)) return this.#lastIndex;
    }
    throw new SubstrateError("NO_ROOM", `all ${maxIndex} network slots of this node are in use`);
  }

  async #create(): Promise<Slot> {
    const slot = this.#slot(this.#nextIndex());
    this.#indices.add(slot.index);
    const link = linkNameOf(slot.index);
    try {
      await this.#nft(slot.index, "make", rules.addSlot(link, slot.nodeAddress));
      await this.#slow.call(`make network slot ${slot.index}`, "createSlot", slot.index, slot.netnsPath, this.#mtu);
    } catch (error) {
      await this.#destroySlot(slot);
      throw error;
    }
    return slot;
  }

  async #destroySlot(slot: Slot): Promise<void> {
    await this.block(slot);
    await this.unpublish(slot);
    await this.#slow.call(`remove network slot ${slot.index}`, "destroySlot", slot.index, slot.netnsPath);
    await this.#nft(slot.index, "remove", rules.removeSlot(linkNameOf(slot.index), slot.nodeAddress));
    this.#indices.delete(slot.index);
  }

  async #takeOver(keep: ReadonlySet<number>): Promise<void> {
    const listed = await this.#quick.call("the actors' nftables table", "nftList", `list table ip ${rules.tableName}`);
    const state = readKernelState(listed);
    for (const port of state.restingPorts) this.#ports.giveBack(port);
    this.#routersBefore = state.routers;
    const links = await this.#slow.call("the actors' links", "slotIndices");
    const files = readdirSync(this.#options.dir).map((name) => indexOf(`a${name}`));
    // nft takes one command after the other: a kill in between leaves some of a slot's elements without the others
    const inRules = [...state.sources.keys(), ...state.blocked].map((link) => indexOf(link));
    const found = new Set([...links, ...files, ...inRules].filter((index) => index !== undefined));
    for (const index of found) {
      const slot = this.#slot(index);
      this.#indices.add(index);
      const mappings = state.mappings.filter(({ nodeAddress }) => nodeAddress === slot.nodeAddress);
      for (const { outerPort } of mappings) this.#ports.adopt(outerPort);
      this.#published.set(index, mappings);
      const whole =
        links.includes(index) &&
        state.sources.get(linkNameOf(index)) === slot.nodeAddress &&
        (await this.#slow.call(`network slot ${index}`, "netnsUsable", slot.netnsPath));
      if (keep.has(index) && whole) continue;
      if (keep.has(index)) this.#log.error("a network slot of a sandbox is not whole; removing it", { slot: index });
      await this.#destroySlot(slot);
    }
  }
}
