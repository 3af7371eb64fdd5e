import { X509Certificate } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Authority, type KeyPairFiles } from "./certificates.ts";

describe("an authority", () => {
  let folder: string;
  const files = (name: string): KeyPairFiles => ({
    cert: join(folder, `${name}.crt`),
    key: join(folder, `${name}.key`),
  });
  const read = (path: string): X509Certificate => new X509Certificate(readFileSync(path));

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "pki-"));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true, force: true });
  });

  it("is the same when it is opened again, and certificates of both times are its own", async () => {
    const first = await Authority.open("ca", files("ca"));
    const early = await first.issue({ subject: "CN=a" }, files("a"));
    const second = await Authority.open("ca", files("ca"));
    const late = await second.issue({ subject: "CN=b" }, files("b"));
    const authority = read(files("ca").cert);
    expect(second.certificatePem()).toBe(first.certificatePem());
    for (const { cert } of [early, late]) expect(read(cert).verify(authority.publicKey)).toBe(true);
  });

  it("issues names, addresses and groups as they are asked for, with a key that only its owner reads", async () => {
    const authority = await Authority.open("ca", files("ca"));
    const { cert, key } = await authority.issue(
      {
        subject: "CN=system:serviceaccount:substrate-system:operator",
        dnsNames: ["operator.substrate-system.svc"],
        ipAddresses: ["127.0.0.1"],
      },
      files("operator"),
    );
    const leaf = read(cert);
    expect(leaf.subject).toBe("CN=system:serviceaccount:substrate-system:operator");
    expect(leaf.checkHost("operator.substrate-system.svc")).toBe("operator.substrate-system.svc");
    expect(leaf.checkIP("127.0.0.1")).toBe("127.0.0.1");
    expect(leaf.ca).toBe(false);
    expect(statSync(key).mode & 0o777).toBe(0o600);
  });
});
