import { attribute, attributesOf, ipv4Bytes, nested, nlm, type NetlinkMessage } from "./netlink.ts";

/** Messages of ctnetlink (linux/netfilter/nfnetlink_conntrack.h). */
const subsystem = 1 << 8;
const message = { get: subsystem | 1, delete: subsystem | 2 } as const;
const cta = { original: 1, reply: 2, filter: 25 } as const;
const tuple = { ip: 1, protocol: 2 } as const;
const ip = { source: 1, destination: 2 } as const;
const protocolDestinationPort = 3;
const filterFlags = { original: 1, reply: 2, ipSource: 1, ipDestination: 2 } as const;
/** struct nfgenmsg: IPv4. */
const header = Buffer.from([2, 0, 0, 0]);

export type TupleSide = "original" | "reply";

/** All tracked connections whose source in one direction is the address; the kernel filters (since Linux 5.8). */
export function listConnections(side: TupleSide, sourceAddress: string): NetlinkMessage {
  const body = Buffer.concat([
    header,
    nested(cta[side], nested(tuple.ip, attribute(ip.source, ipv4Bytes(sourceAddress)))),
    nested(
      cta.filter,
      attribute(filterFlags.original, side === "original" ? filterFlags.ipSource : 0),
      attribute(filterFlags.reply, side === "reply" ? filterFlags.ipSource : 0),
    ),
  ]);
  return { type: message.get, flags: nlm.request | nlm.dump, body };
}

/** Forgets one listed connection; undefined if it is not one of the address's. */
export function deleteConnection(listed: Buffer, side: TupleSide, sourceAddress: string): NetlinkMessage | undefined {
  const attributes = attributesOf(listed, header.length);
  const original = attributes.get(cta.original);
  if (
    original === undefined ||
    !inTuple(attributes.get(cta[side]), tuple.ip, ip.source)?.equals(ipv4Bytes(sourceAddress))
  )
    return undefined;
  return deletionOf(original);
}

/** All tracked connections that began with a packet to the address. */
export function listConnectionsTo(address: string): NetlinkMessage {
  const body = Buffer.concat([
    header,
    nested(cta.original, nested(tuple.ip, attribute(ip.destination, ipv4Bytes(address)))),
    nested(cta.filter, attribute(filterFlags.original, filterFlags.ipDestination), attribute(filterFlags.reply, 0)),
  ]);
  return { type: message.get, flags: nlm.request | nlm.dump, body };
}

/** A listed connection from outside, as seen by who answers it, and what forgets it. */
export interface InboundConnection {
  /** Where it was sent to. */
  port: number;
  /** Who answers; another one than it was sent to if it was rewritten. */
  answeredBy: string;
  deletion: NetlinkMessage;
}

/** Undefined for one that has no ports. */
export function inboundConnection(listed: Buffer): InboundConnection | undefined {
  const attributes = attributesOf(listed, header.length);
  const original = attributes.get(cta.original);
  const port = inTuple(original, tuple.protocol, protocolDestinationPort);
  const answeredBy = inTuple(attributes.get(cta.reply), tuple.ip, ip.source);
  if (original === undefined || port === undefined || answeredBy === undefined) return undefined;
  return { port: port.readUInt16BE(0), answeredBy: answeredBy.join("."), deletion: deletionOf(original) };
}

function inTuple(bytes: Buffer | undefined, part: number, field: number): Buffer | undefined {
  const inner = bytes && attributesOf(bytes, 0).get(part);
  return inner && attributesOf(inner, 0).get(field);
}

function deletionOf(original: Buffer): NetlinkMessage {
  return {
    type: message.delete,
    flags: nlm.request | nlm.ack,
    body: Buffer.concat([header, nested(cta.original, original)]),
  };
}
