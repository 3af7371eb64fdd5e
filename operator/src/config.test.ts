import { describe, expect, it } from "vitest";
import { parseConfig } from "./config.ts";

const flags: Record<string, string> = {
  "grpc-listen": "127.0.0.1:1",
  "advertise-address": "127.0.0.1:1",
  "api-listen": "127.0.0.1:2",
  "requestheader-ca": "/r",
  "requestheader-allowed-names": "front-proxy",
  "tls-cert": "/c",
  "tls-key": "/k",
  "tls-ca": "/ca",
  "router-url": "http://127.0.0.1:3",
  "metrics-listen": "127.0.0.1:4",
};
const argv = (changes: Record<string, string | undefined> = {}): string[] =>
  Object.entries({ ...flags, ...changes }).flatMap(([flag, value]) =>
    value === undefined ? [] : [`--${flag}`, value],
  );

describe("parseConfig", () => {
  it("reads all flags, some of them repeatedly", () => {
    const config = parseConfig([...argv(), "--requestheader-allowed-names", "other"]);
    expect(config).toMatchObject({
      namespace: "substrate-system",
      kubeconfig: undefined,
      logLevel: "info",
      frontProxy: { caFile: "/r", allowedNames: ["front-proxy", "other"] },
      certificates: { files: { caFile: "/ca", certFile: "/c", keyFile: "/k" } },
      apiAdvertiseAddress: "127.0.0.1:2",
      apiService: undefined,
      leaseDurationMs: 10_000,
    });
  });

  it("makes certificates by itself, and asks the cluster for its front proxy", () => {
    const own = {
      "tls-cert": undefined,
      "tls-key": undefined,
      "tls-ca": undefined,
      "requestheader-ca": undefined,
      "requestheader-allowed-names": undefined,
      "managed-certificates": "substrate",
      "certificate-lifetime": "60",
      "authority-lifetime": "240",
      "api-service": "substrate-operator",
      owner: "substrate-operator",
    };
    expect(parseConfig(argv(own))).toMatchObject({
      certificates: { managed: { prefix: "substrate", certificateLifetimeMs: 60_000, authorityLifetimeMs: 240_000 } },
      frontProxy: undefined,
      apiService: { name: "substrate-operator", port: 443 },
      owner: "substrate-operator",
    });
    expect(() => parseConfig(argv({ ...own, "authority-lifetime": "239" }))).toThrow("at least 240");
    expect(() => parseConfig(argv({ ...own, "tls-ca": "/ca" }))).toThrow("exclude each other");
  });

  it.each([
    [{ "tls-ca": undefined }, "--tls-ca is missing"],
    [{ "requestheader-ca": undefined }, "--requestheader-ca is missing"],
    [{ "lease-duration": "1" }, "at least 2"],
    [{ "api-service": "a/b" }, "not a Service's NAME"],
    [{ "api-listen": "nowhere" }, "not an address"],
    [{ "router-url": "router" }, "not a URL"],
    [{ "log-level": "loud" }, "not one of"],
  ])("refuses %j with the help", (changes, message) => {
    expect(() => parseConfig(argv(changes))).toThrow(message);
    expect(() => parseConfig(argv(changes))).toThrow("--grpc-listen HOST:PORT");
  });
});
