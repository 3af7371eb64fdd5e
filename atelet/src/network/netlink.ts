import { getSystemErrorName } from "node:util";

/** Encoding of netlink messages (linux/netlink.h): little-endian hosts only, which is what the runtime supports. */

/** Flags of nlmsghdr. */
export const nlm = { request: 0x1, ack: 0x4, dump: 0x300, replace: 0x100, exclusive: 0x200, create: 0x400 } as const;

const headerBytes = 16;
const types = { error: 2, done: 3 } as const;
const nestedFlag = 0x8000;

export interface NetlinkMessage {
  type: number;
  flags: number;
  body: Buffer;
}

/** A kernel's refusal of one message. */
export class NetlinkError extends Error {
  override readonly name = "NetlinkError";
  readonly errno: number;

  constructor(errno: number) {
    super(`the kernel refused: ${getSystemErrorName(-errno)}`);
    this.errno = errno;
  }
}

function padded(length: number): number {
  return (length + 3) & ~3;
}

export function attribute(type: number, payload: Buffer | string | number): Buffer {
  const bytes =
    typeof payload === "number" ? u32(payload) : typeof payload === "string" ? Buffer.from(`${payload}\0`) : payload;
  const out = Buffer.alloc(padded(4 + bytes.length));
  out.writeUInt16LE(4 + bytes.length, 0);
  out.writeUInt16LE(type, 2);
  bytes.copy(out, 4);
  return out;
}

export function nested(type: number, ...attributes: Buffer[]): Buffer {
  return attribute(type | nestedFlag, Buffer.concat(attributes));
}

function u32(value: number): Buffer {
  const out = Buffer.alloc(4);
  out.writeUInt32LE(value);
  return out;
}

export function ipv4Bytes(address: string): Buffer {
  return Buffer.from(address.split(".").map(Number));
}

export function macBytes(address: string): Buffer {
  return Buffer.from(address.replaceAll(":", ""), "hex");
}

export function encode(messages: readonly NetlinkMessage[]): Buffer {
  return Buffer.concat(
    messages.map(({ type, flags, body }, sequence) => {
      const head = Buffer.alloc(headerBytes);
      head.writeUInt32LE(headerBytes + body.length, 0);
      head.writeUInt16LE(type, 4);
      head.writeUInt16LE(flags, 6);
      head.writeUInt32LE(sequence + 1, 8);
      return Buffer.concat([head, body, Buffer.alloc(padded(body.length) - body.length)]);
    }),
  );
}

export interface Replies {
  /** Bodies of all messages that are neither acknowledgement nor end of a dump. */
  bodies: Buffer[];
  /** Acknowledgements, good ones included, and ends of dumps. */
  acknowledged: number;
  /** errno values of refused messages. */
  errnos: number[];
}

/** One datagram of the kernel's. */
export function decode(datagram: Buffer): Replies {
  const replies: Replies = { bodies: [], acknowledged: 0, errnos: [] };
  for (let at = 0; at + headerBytes <= datagram.length;) {
    const length = datagram.readUInt32LE(at);
    const type = datagram.readUInt16LE(at + 4);
    const body = datagram.subarray(at + headerBytes, at + length);
    if (type === types.error || type === types.done) {
      const code = body.length >= 4 ? -body.readInt32LE(0) : 0;
      replies.acknowledged += 1;
      if (code > 0) replies.errnos.push(code);
    } else {
      replies.bodies.push(body);
    }
    at += padded(Math.max(length, headerBytes));
  }
  return replies;
}

/** The attributes after a message's fixed part, by type. */
export function attributesOf(body: Buffer, fixedBytes: number): Map<number, Buffer> {
  const found = new Map<number, Buffer>();
  for (let at = fixedBytes; at + 4 <= body.length;) {
    const length = body.readUInt16LE(at);
    if (length < 4) break;
    found.set(body.readUInt16LE(at + 2) & ~nestedFlag, body.subarray(at + 4, at + length));
    at += padded(length);
  }
  return found;
}
