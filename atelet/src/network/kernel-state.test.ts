import { describe, expect, it } from "vitest";
import { readKernelState } from "./kernel-state.ts";

describe("readKernelState", () => {
  it("reads what nft -j prints", () => {
    const state = readKernelState({
      nftables: [
        { metainfo: { version: "1.0.6", json_schema_version: 1 } },
        { table: { family: "ip", name: "ate", handle: 1 } },
        { map: { name: "src", type: "ifname", map: "ipv4_addr", elem: [["a7", "100.64.0.7"]] } },
        { map: { name: "dn", elem: [[20_007, { concat: ["100.64.0.7", 8080] }]] } },
        { set: { name: "recent", elem: [{ elem: { val: 20_001, timeout: 600, expires: 3 } }, 20_002] } },
        { set: { name: "blk", type: "ifname", elem: ["a8"] } },
        { set: { name: "asleep", elem: ["100.64.0.8", { elem: { val: "100.64.0.9", comment: "u 3 2 10.0.0.2 5" } }] } },
      ],
    });
    expect(state.sources).toEqual(new Map([["a7", "100.64.0.7"]]));
    expect(state.blocked).toEqual(["a8"]);
    expect([...state.asleep]).toEqual([
      ["100.64.0.8", undefined],
      ["100.64.0.9", "u 3 2 10.0.0.2 5"],
    ]);
    expect(state.mappings).toEqual([{ outerPort: 20_007, nodeAddress: "100.64.0.7", containerPort: 8080 }]);
    expect(state.restingPorts).toEqual([20_001, 20_002]);
  });

  it("refuses another shape instead of forgetting ports", () => {
    expect(() => readKernelState({ nftables: [{ map: { name: "dn", elem: [["x", "y"]] } }] })).toThrow();
  });
});
