import { describe, expect, it } from "vitest";
import { parseConfig } from "./config.ts";

const flags: Record<string, string> = {
  "grpc-listen": "127.0.0.1:1",
  "advertise-address": "127.0.0.1:1",
  "api-listen": "127.0.0.1:2",
  "api-tls-cert": "/c",
  "api-tls-key": "/k",
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
      requestheaderAllowedNames: ["front-proxy", "other"],
    });
  });

  it.each([
    [{ "tls-ca": undefined }, "--tls-ca is missing"],
    [{ "api-listen": "nowhere" }, "not an address"],
    [{ "router-url": "router" }, "not a URL"],
    [{ "log-level": "loud" }, "not one of"],
  ])("refuses %j with the help", (changes, message) => {
    expect(() => parseConfig(argv(changes))).toThrow(message);
    expect(() => parseConfig(argv(changes))).toThrow("--grpc-listen HOST:PORT");
  });
});
