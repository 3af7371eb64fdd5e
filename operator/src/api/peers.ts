import { type X509Certificate } from "node:crypto";
import { isSignedBy } from "@substrate/lib/certificates.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type FrontProxyIdentity } from "./front-proxy.ts";

/** Who may talk to the API, both with the caller's identity in headers. */
export type Peer = "front proxy" | "operator";

export interface TrustedPeers {
  frontProxy: FrontProxyIdentity;
  /** PEM, one or several: of the parts. */
  partAuthorities: string;
  /** Common name of an operator's certificate. */
  operatorName: string;
}

/**
 * Whose connection this is, by its certificate. TLS has only checked that one of all authorities signed it; which one
 * decides what its name means. Throws FORBIDDEN.
 */
export function peerOf(certificate: X509Certificate | undefined, trusted: TrustedPeers): Peer {
  const { allowedNames, authorities } = trusted.frontProxy;
  const name = certificate?.toLegacyObject().subject.CN;
  if (certificate !== undefined && typeof name === "string") {
    if (isSignedBy(certificate, authorities) && (allowedNames.length === 0 || allowedNames.includes(name))) {
      return "front proxy";
    }
    if (isSignedBy(certificate, trusted.partAuthorities) && name === trusted.operatorName) return "operator";
  }
  const allowed = `kube-apiserver's front proxy (${allowedNames.join(", ") || "any name"}) and operators`;
  const message = `client certificate "${String(name)}" may not speak for callers: ${allowed} may`;
  throw new SubstrateError("FORBIDDEN", `${message}; ask kube-apiserver instead of this server`);
}
