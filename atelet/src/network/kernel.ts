import { closeSync, existsSync, openSync, unlinkSync, writeFileSync } from "node:fs";
import {
  deleteConnection,
  inboundConnection,
  listConnections,
  listConnectionsTo,
  type TupleSide,
} from "./conntrack.ts";
import { indexOf, interior, linkNameOf } from "./interior.ts";
import { type Linux, type NetlinkSocket } from "./linux.ts";
import { decode, encode, type NetlinkMessage, NetlinkError } from "./netlink.ts";
import { type Nftables } from "./nftables.ts";
import {
  deleteLink,
  getLink,
  linkOf,
  linkUp,
  listLinks,
  newVeth,
  putAddress,
  putDefaultRoute,
  putHostRoute,
  putNeighbour,
} from "./rtnetlink.ts";

const enodev = 19;
const enoent = 2;

/** What the node's network does in the kernel, by blocking calls; runs in a worker (lane-worker.ts). */
export class Kernel {
  readonly #linux: Linux;
  readonly #nftables: Nftables;
  readonly #route: NetlinkSocket;

  constructor(linux: Linux, nftables: Nftables) {
    this.#linux = linux;
    this.#nftables = nftables;
    this.#route = linux.netlinkSocket("route");
  }

  /** One nftables transaction. */
  nft(commands: string): void {
    this.#nftables.run(commands);
  }

  nftList(command: string): unknown {
    return this.#nftables.list(command);
  }

  /** Sysctls of the pod's namespace: "net/ipv4/ip_forward" → "1". One that this kernel lacks is refused by name. */
  sysctl(values: Record<string, string>): void {
    for (const [name, value] of Object.entries(values)) writeFileSync(`/proc/sys/${name}`, value);
  }

  linkMtu(name: string): number {
    const [body] = ask(this.#route, [getLink(name)]);
    if (body === undefined) throw new Error(`network device ${name} did not answer`);
    return linkOf(body).mtu;
  }

  /** Indices of the slots whose link exists. */
  slotIndices(): number[] {
    return ask(this.#route, [listLinks()])
      .map((body) => indexOf(linkOf(body).name))
      .filter((index) => index !== undefined);
  }

  /** Whether the file is a network namespace that can be entered and has the interior device. */
  netnsUsable(netnsPath: string): boolean {
    if (!existsSync(netnsPath)) return false;
    try {
      this.#inNetns(netnsPath, (socket) => ask(socket, [getLink(interior.device)]));
      return true;
    } catch (error) {
      if (error instanceof Error) return false;
      throw error;
    }
  }

  /** A namespace with lo and eth0 inside, the pod's end of the veth with address, host route and neighbour outside. */
  createSlot(index: number, nodeAddress: string, netnsPath: string, mtu: number): void {
    closeSync(openSync(netnsPath, "ax", 0o400));
    this.#linux.inNewNetns(() => {
      disableIpv6("all");
      disableIpv6("default");
      this.#linux.bindMount("/proc/thread-self/ns/net", netnsPath);
    });
    const name = linkNameOf(index);
    const ends = {
      name,
      mac: interior.gatewayMac,
      peerName: interior.device,
      peerMac: interior.mac,
      mtu,
    };
    const netnsFd = openSync(netnsPath, "r");
    try {
      ask(this.#route, [newVeth(ends, netnsFd)]);
    } finally {
      closeSync(netnsFd);
    }
    disableIpv6(name);
    const link = this.#linkIndex(this.#route, name);
    ask(this.#route, [
      linkUp(link),
      putAddress(link, interior.gateway, 32, true),
      putHostRoute(link, nodeAddress),
      putNeighbour(link, interior.address, interior.mac),
    ]);
    this.#inNetns(netnsPath, (socket) => {
      ask(socket, [linkUp(this.#linkIndex(socket, "lo")), linkUp(this.#linkIndex(socket, interior.device))]);
    });
    this.putAddress(netnsPath);
  }

  /** Address, default route and gateway's neighbour of eth0, as the runtime copies them at each start and restore. */
  putAddress(netnsPath: string): void {
    this.#inNetns(netnsPath, (socket) => {
      const link = this.#linkIndex(socket, interior.device);
      ask(socket, [
        putAddress(link, interior.address, interior.prefix),
        putDefaultRoute(link, interior.gateway),
        putNeighbour(link, interior.gateway, interior.gatewayMac),
      ]);
    });
  }

  /** What is for this address goes to the slot from now on, whoever had it before. */
  routeAddress(index: number, nodeAddress: string): void {
    ask(this.#route, [putHostRoute(this.#linkIndex(this.#route, linkNameOf(index)), nodeAddress)]);
  }

  /** Link and namespace file; what is already gone is no error. */
  destroySlot(index: number, netnsPath: string): void {
    unlessErrno(enodev, () => ask(this.#route, [deleteLink(linkNameOf(index))]));
    this.#linux.unmount(netnsPath);
    if (existsSync(netnsPath)) unlinkSync(netnsPath);
  }

  /**
   * Tracked connections that the address began ("original") or that began elsewhere ("reply"): so that nothing of the
   * last tenant's reaches the next one that gets this address, or this outer port.
   */
  forgetConnections(nodeAddress: string, sides: readonly TupleSide[]): void {
    const socket = this.#linux.netlinkSocket("netfilter");
    try {
      for (const side of sides) {
        for (const listed of ask(socket, [listConnections(side, nodeAddress)])) {
          const message = deleteConnection(listed, side, nodeAddress);
          if (message !== undefined) unlessErrno(enoent, () => ask(socket, [message]));
        }
      }
    } finally {
      socket.close();
    }
  }

  /**
   * Connections from outside to `podAddress` that an actor's address answers: those to these ports, or to any port if none
   * are given. For many at once, as the kernel looks through its whole table each time, some 10 ms.
   */
  forgetInbound(podAddress: string, of: ReadonlyMap<string, readonly number[] | undefined>): void {
    const socket = this.#linux.netlinkSocket("netfilter");
    try {
      for (const listed of ask(socket, [listConnectionsTo(podAddress)])) {
        const found = inboundConnection(listed);
        if (found === undefined || !of.has(found.answeredBy)) continue;
        if (of.get(found.answeredBy)?.includes(found.port) === false) continue;
        unlessErrno(enoent, () => ask(socket, [found.deletion]));
      }
    } finally {
      socket.close();
    }
  }

  #linkIndex(socket: NetlinkSocket, name: string): number {
    const [body] = ask(socket, [getLink(name)]);
    if (body === undefined) throw new Error(`network device ${name} did not answer`);
    return linkOf(body).index;
  }

  #inNetns<T>(netnsPath: string, use: (socket: NetlinkSocket) => T): T {
    const netnsFd = openSync(netnsPath, "r");
    try {
      const socket = this.#linux.inNetns(netnsFd, () => this.#linux.netlinkSocket("route"));
      try {
        return use(socket);
      } finally {
        socket.close();
      }
    } finally {
      closeSync(netnsFd);
    }
  }
}

/** Per namespace of the calling thread; a kernel without IPv6 has nothing to disable. */
function disableIpv6(device: string): void {
  const file = `/proc/sys/net/ipv6/conf/${device}/disable_ipv6`;
  if (existsSync(file)) writeFileSync(file, "1");
}

/** Sends messages at once and returns the bodies of their answers; throws NetlinkError for the first refused one. */
function ask(socket: NetlinkSocket, messages: readonly NetlinkMessage[]): Buffer[] {
  socket.send(encode(messages));
  const bodies: Buffer[] = [];
  const errnos: number[] = [];
  for (let acknowledged = 0; acknowledged < messages.length;) {
    const replies = decode(socket.receive());
    bodies.push(...replies.bodies);
    errnos.push(...replies.errnos);
    acknowledged += replies.acknowledged;
  }
  const [first] = errnos;
  if (first !== undefined) throw new NetlinkError(first);
  return bodies;
}

function unlessErrno(errno: number, action: () => unknown): void {
  try {
    action();
  } catch (error) {
    if (!(error instanceof NetlinkError) || error.errno !== errno) throw error;
  }
}
