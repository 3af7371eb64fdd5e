import { expect, it } from "vitest";
import { missingCapabilities } from "./privileges.ts";

it("names the capabilities that a container of no privileges lacks", () => {
  expect(missingCapabilities("Name:\tnode\nCapEff:\t000001ffffffffff\n")).toEqual([]);
  // what containerd gives by default
  expect(missingCapabilities("CapEff:\t00000000a80425fb\n")).toEqual([
    "CAP_NET_ADMIN",
    "CAP_SYS_PTRACE",
    "CAP_SYS_ADMIN",
  ]);
});
