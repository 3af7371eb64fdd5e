import { describe, expect, it } from "vitest";
import { attribute, attributesOf, decode, encode, ipv4Bytes, nested } from "./netlink.ts";
import { resolversOf } from "./resolvers.ts";
import { linkOf, putHostRoute } from "./rtnetlink.ts";

describe("netlink", () => {
  it("lays out a host route as linux/rtnetlink.h says", () => {
    // nlmsghdr, rtmsg, RTA_DST, RTA_OIF
    const expected =
      "2c000000" +
      "1800" +
      "0505" +
      "01000000" +
      "00000000" +
      "02200000" +
      "fe03fd01" +
      "00000000" +
      "08000100" +
      "64400007" +
      "08000400" +
      "05000000";
    expect(encode([putHostRoute(5, "100.64.0.7")]).toString("hex")).toBe(expected);
  });

  it("reads attributes back, nested and padded ones too", () => {
    const body = Buffer.concat([Buffer.alloc(4), attribute(3, "a7"), nested(1, attribute(2, ipv4Bytes("1.2.3.4")))]);
    const attributes = attributesOf(body, 4);
    expect(attributes.get(3)?.toString()).toBe("a7\0");
    expect(attributesOf(attributes.get(1) ?? Buffer.alloc(0), 0).get(2)).toEqual(Buffer.from([1, 2, 3, 4]));
  });

  it("tells acknowledgements from refusals and answers", () => {
    const refusal = Buffer.alloc(4);
    refusal.writeInt32LE(-19);
    const link = Buffer.concat([Buffer.alloc(16), attribute(3, "eth0"), attribute(4, 1450)]);
    link.writeInt32LE(9, 4);
    const replies = decode(
      encode([
        { type: 16, flags: 0, body: link },
        { type: 2, flags: 0, body: Buffer.alloc(4) },
        { type: 2, flags: 0, body: refusal },
      ]),
    );
    expect(replies).toMatchObject({ acknowledged: 2, errnos: [19] });
    expect(replies.bodies.map(linkOf)).toEqual([{ index: 9, name: "eth0", mtu: 1450 }]);
  });
});

describe("resolversOf", () => {
  it("takes IPv4 name servers that another namespace can reach", () => {
    const text =
      "search a.b\nnameserver 127.0.0.53\n nameserver 10.96.0.10 # x\nnameserver fd00::1\nnameserver 10.96.0.10\n";
    expect(resolversOf(text)).toEqual({ usable: ["10.96.0.10"], loopback: ["127.0.0.53"] });
  });
});
