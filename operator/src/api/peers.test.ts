import { X509Certificate } from "node:crypto";
import { CertificateAuthority } from "@substrate/lib/certificates.ts";
import { beforeAll, describe, expect, it } from "vitest";
import { peerOf, type TrustedPeers } from "./peers.ts";

describe("peerOf", () => {
  const operatorName = "system:serviceaccount:substrate-system:operator";
  let authorities: Record<"cluster" | "parts" | "stranger", CertificateAuthority>;
  let trusted: TrustedPeers;
  const certificate = async (authority: keyof typeof authorities, name: string): Promise<X509Certificate> =>
    new X509Certificate((await authorities[authority].issue({ subject: `CN=${name}` }, 60_000)).cert);

  beforeAll(async () => {
    const [cluster, parts, stranger] = await Promise.all([
      CertificateAuthority.create("cluster", 60_000),
      CertificateAuthority.create("parts", 60_000),
      CertificateAuthority.create("stranger", 60_000),
    ]);
    authorities = { cluster, parts, stranger };
    trusted = {
      frontProxy: { authorities: cluster.pair.cert, allowedNames: ["front-proxy"] },
      partAuthorities: parts.pair.cert,
      operatorName,
    };
  });

  it("knows kube-apiserver and operators by name and authority together", async () => {
    expect(peerOf(await certificate("cluster", "front-proxy"), trusted)).toBe("front proxy");
    expect(peerOf(await certificate("parts", operatorName), trusted)).toBe("operator");
  });

  it("takes any name of the front proxy's authority when no names are listed", async () => {
    const anybody = { ...trusted, frontProxy: { ...trusted.frontProxy, allowedNames: [] } };
    expect(peerOf(await certificate("cluster", "x"), anybody)).toBe("front proxy");
  });

  it.each([
    ["parts", "front-proxy"],
    ["cluster", operatorName],
    ["parts", "system:serviceaccount:substrate-system:router"],
    ["stranger", "front-proxy"],
    ["stranger", operatorName],
  ] as const)("refuses what %s has signed as %s", async (authority, name) => {
    const peer = await certificate(authority, name);
    expect(() => peerOf(peer, trusted)).toThrow(`client certificate "${name}" may not speak for callers`);
  });

  it("refuses whoever shows none", () => {
    expect(() => peerOf(undefined, trusted)).toThrow("may not speak for callers");
  });
});
