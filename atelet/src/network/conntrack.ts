import { attribute, attributesOf, ipv4Bytes, nested, nlm, type NetlinkMessage } from "./netlink.ts";

/** Messages of ctnetlink (linux/netfilter/nfnetlink_conntrack.h). */
const subsystem = 1 << 8;
const message = { get: subsystem | 1, delete: subsystem | 2 } as const;
const cta = { original: 1, reply: 2, filter: 25 } as const;
const tupleIp = 1;
const ipSource = 1;
const filterFlags = { original: 1, reply: 2, ipSource: 1 } as const;
/** struct nfgenmsg: IPv4. */
const header = Buffer.from([2, 0, 0, 0]);

export type TupleSide = "original" | "reply";

/** All tracked connections whose source in one direction is the address; the kernel filters (since Linux 5.8). */
export function listConnections(side: TupleSide, sourceAddress: string): NetlinkMessage {
  const body = Buffer.concat([
    header,
    nested(cta[side], nested(tupleIp, attribute(ipSource, ipv4Bytes(sourceAddress)))),
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
  const tuple = attributes.get(cta[side]);
  const original = attributes.get(cta.original);
  if (tuple === undefined || original === undefined) return undefined;
  const ip = attributesOf(tuple, 0).get(tupleIp);
  const source = ip && attributesOf(ip, 0).get(ipSource);
  if (!source?.equals(ipv4Bytes(sourceAddress))) return undefined;
  return {
    type: message.delete,
    flags: nlm.request | nlm.ack,
    body: Buffer.concat([header, nested(cta.original, original)]),
  };
}
