import { describe, expect, it } from "vitest";
import { ConfigError, parseConfig } from "./config.ts";

const good = [
  ..."--node-name n1 --kubeconfig /k --state-dir /s --advertise-address 10.0.0.2 --tls-cert /c --tls-key /y".split(" "),
  ..."--tls-ca /a --runsc /t/runsc --crane /t/crane --umoci /t/umoci --store default=file:///var/store".split(" "),
];

function errorOf(...extra: string[]): string {
  try {
    parseConfig([...good, ...extra], {});
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  return "no error";
}

describe("parseConfig", () => {
  it("reads every flag and fills in defaults", () => {
    const config = parseConfig([...good, "--deny-cidr", "203.0.113.0/24", "--deny-cidr=198.51.100.0/24"], {});
    expect(config.stores.get("default")).toMatchObject({ kind: "folder", path: "/var/store" });
    expect(config.denyCidrs).toEqual(["203.0.113.0/24", "198.51.100.0/24"]);
    expect(config).toMatchObject({
      namespace: "substrate-system",
      port: 7443,
      diskFloor: { kind: "auto" },
      lendPercent: 25,
      graceMs: 30_000,
      nodeName: "n1",
    });
  });

  it("takes credentials and authorities for a bucket", () => {
    const flags = ["--store", "s3=s3://bucket?region=r1", "--store-credentials", "s3=/c", "--store-ca", "s3=/ca.crt"];
    expect(parseConfig([...good, ...flags], {}).stores.get("s3")).toMatchObject({
      kind: "bucket",
      credentialsDir: "/c",
      caPath: "/ca.crt",
    });
  });

  it("finds tools on PATH", () => {
    expect(parseConfig([...good, "--runsc", "sh"], { PATH: "/nowhere:/bin" }).tools.runsc).toBe("/bin/sh");
  });

  it("says which flag is wrong and what it expects", () => {
    expect(errorOf("--port", "x")).toBe('--port: expects a whole number from 1 to 65535, not "x"');
    expect(errorOf("--state-dir", "rel")).toBe('--state-dir: expects an absolute path, not "rel"');
    expect(errorOf("--store", "b=http://x")).toContain('--store: the store b has the URL "http://x": use file:///');
    expect(errorOf("--store", "default=s3://bucket")).toBe(
      '--store: expects each name once, not "default=s3://bucket"',
    );
    expect(errorOf("--store", "Bad=s3://bucket")).toContain("--store: expects NAME=URL with a lower-case name");
    expect(errorOf("--store-ca", "s3=/ca")).toBe('--store-ca: expects the name of a --store (default), not "s3"');
    expect(errorOf("--store-credentials", "default=rel")).toContain("--store-credentials: expects an absolute path");
    expect(errorOf("--deny-cidr", "10.0.0.0/33")).toContain("--deny-cidr: expects an IPv4 range");
    expect(errorOf("--crane", "no-such-tool")).toContain("--crane: expects an absolute path or the name of a program");
    expect(errorOf("--actor-logs", "file")).toBe('--actor-logs: expects none or stdout, not "file"');
    expect(errorOf("--disk-floor", "60%")).toContain("--disk-floor: expects auto, a number of bytes, or 0% to 50%");
    expect(errorOf("--snapshot-quota-bytes", "0")).toContain("--snapshot-quota-bytes: expects none or a number");
    expect(errorOf("--nonsense")).toContain("--nonsense");
    expect(() => parseConfig([], {})).toThrow("--node-name: expects the name of this Node object, and it is missing");
  });
});
