import { describe, expect, it } from "vitest";
import { pickSubnet, subnetAddresses } from "./pod-network.ts";

describe("the /30 of a pod", () => {
  it("covers 10.214.0.0/16 without overlap", () => {
    expect(subnetAddresses(0)).toEqual({ range: "10.214.0.0/30", host: "10.214.0.1", pod: "10.214.0.2" });
    expect(subnetAddresses(64)).toEqual({ range: "10.214.1.0/30", host: "10.214.1.1", pod: "10.214.1.2" });
    expect(subnetAddresses(16_383)).toEqual({
      range: "10.214.255.252/30",
      host: "10.214.255.253",
      pod: "10.214.255.254",
    });
  });

  it("stays the same over restarts while it is free", () => {
    expect(pickSubnet(4321)).toBe(4321);
  });
});
