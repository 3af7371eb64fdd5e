import { attribute, attributesOf, ipv4Bytes, macBytes, nested, nlm, type NetlinkMessage } from "./netlink.ts";

/** Messages of rtnetlink(7): links, addresses, routes, neighbours. Numbers from linux/rtnetlink.h and if_link.h. */
const rtm = { newLink: 16, delLink: 17, getLink: 18, newAddress: 20, newRoute: 24, newNeighbour: 28 } as const;
const ifla = {
  address: 1,
  ifname: 3,
  mtu: 4,
  linkInfo: 18,
  netnsFd: 28,
  infoKind: 1,
  infoData: 2,
  vethPeer: 1,
} as const;
const ifa = { address: 1, local: 2, flags: 8, noPrefixRoute: 0x200 } as const;
const rta = { destination: 1, outInterface: 4, gateway: 5 } as const;
const nda = { destination: 1, linkAddress: 2 } as const;
const family = { unspecified: 0, ipv4: 2 } as const;
const up = 1;
const scope = { universe: 0, link: 253 } as const;
const upsert = nlm.request | nlm.ack | nlm.create | nlm.replace;

const linkHeaderBytes = 16;

/** struct ifinfomsg */
function linkHeader(index: number, flags = 0): Buffer {
  const out = Buffer.alloc(linkHeaderBytes);
  out.writeInt32LE(index, 4);
  out.writeUInt32LE(flags, 8);
  out.writeUInt32LE(flags, 12);
  return out;
}

export interface VethEnds {
  name: string;
  mac: string;
  peerName: string;
  peerMac: string;
  mtu: number;
}

/** A veth pair: one end here, the other in the namespace of the open descriptor. */
export function newVeth(ends: VethEnds, peerNetnsFd: number): NetlinkMessage {
  const peer = Buffer.concat([
    linkHeader(0),
    attribute(ifla.ifname, ends.peerName),
    attribute(ifla.address, macBytes(ends.peerMac)),
    attribute(ifla.mtu, ends.mtu),
    attribute(ifla.netnsFd, peerNetnsFd),
  ]);
  const body = Buffer.concat([
    linkHeader(0),
    attribute(ifla.ifname, ends.name),
    attribute(ifla.address, macBytes(ends.mac)),
    attribute(ifla.mtu, ends.mtu),
    nested(
      ifla.linkInfo,
      attribute(ifla.infoKind, Buffer.from("veth")),
      nested(ifla.infoData, attribute(ifla.vethPeer, peer)),
    ),
  ]);
  return { type: rtm.newLink, flags: nlm.request | nlm.ack | nlm.create | nlm.exclusive, body };
}

export function linkUp(index: number): NetlinkMessage {
  return { type: rtm.newLink, flags: nlm.request | nlm.ack, body: linkHeader(index, up) };
}

export function deleteLink(name: string): NetlinkMessage {
  const body = Buffer.concat([linkHeader(0), attribute(ifla.ifname, name)]);
  return { type: rtm.delLink, flags: nlm.request | nlm.ack, body };
}

/** Answered by one body for `linkOf`, or ENODEV. */
export function getLink(name: string): NetlinkMessage {
  const body = Buffer.concat([linkHeader(0), attribute(ifla.ifname, name)]);
  return { type: rtm.getLink, flags: nlm.request | nlm.ack, body };
}

/** Answered by one body for `linkOf` per link. */
export function listLinks(): NetlinkMessage {
  return { type: rtm.getLink, flags: nlm.request | nlm.dump, body: linkHeader(0) };
}

export interface Link {
  index: number;
  name: string;
  mtu: number;
}

export function linkOf(body: Buffer): Link {
  const attributes = attributesOf(body, linkHeaderBytes);
  return {
    index: body.readInt32LE(4),
    name: attributes.get(ifla.ifname)?.toString("latin1").replace(/\0.*$/, "") ?? "",
    mtu: attributes.get(ifla.mtu)?.readUInt32LE(0) ?? 0,
  };
}

/** An IPv4 address on a link; `plain` makes no route of its own for the prefix. */
export function putAddress(link: number, address: string, prefix: number, plain = false): NetlinkMessage {
  const head = Buffer.alloc(8);
  head.writeUInt8(family.ipv4, 0);
  head.writeUInt8(prefix, 1);
  head.writeUInt32LE(link, 4);
  const body = Buffer.concat([
    head,
    attribute(ifa.local, ipv4Bytes(address)),
    attribute(ifa.address, ipv4Bytes(address)),
    attribute(ifa.flags, plain ? ifa.noPrefixRoute : 0),
  ]);
  return { type: rtm.newAddress, flags: upsert, body };
}

/** struct rtmsg: table main, protocol boot, unicast. */
function routeHeader(prefix: number, routeScope: number): Buffer {
  return Buffer.from([family.ipv4, prefix, 0, 0, 254, 3, routeScope, 1, 0, 0, 0, 0]);
}

export function putHostRoute(link: number, address: string): NetlinkMessage {
  const body = Buffer.concat([
    routeHeader(32, scope.link),
    attribute(rta.destination, ipv4Bytes(address)),
    attribute(rta.outInterface, link),
  ]);
  return { type: rtm.newRoute, flags: upsert, body };
}

export function putDefaultRoute(link: number, gateway: string): NetlinkMessage {
  const body = Buffer.concat([
    routeHeader(0, scope.universe),
    attribute(rta.gateway, ipv4Bytes(gateway)),
    attribute(rta.outInterface, link),
  ]);
  return { type: rtm.newRoute, flags: upsert, body };
}

/** A neighbour that is never asked for (NUD_PERMANENT). */
export function putNeighbour(link: number, address: string, mac: string): NetlinkMessage {
  const permanent = 0x80;
  const head = Buffer.alloc(12);
  head.writeUInt8(family.ipv4, 0);
  head.writeInt32LE(link, 4);
  head.writeUInt16LE(permanent, 8);
  const body = Buffer.concat([
    head,
    attribute(nda.destination, ipv4Bytes(address)),
    attribute(nda.linkAddress, macBytes(mac)),
  ]);
  return { type: rtm.newNeighbour, flags: upsert, body };
}
