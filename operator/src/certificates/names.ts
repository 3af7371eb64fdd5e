import { type LeafRequest } from "@substrate/lib/certificates.ts";
import { serverName } from "@substrate/lib/rpc/client.ts";

/** Parts whose certificates lie in Secrets. */
export type ManagedPart = "atelet" | "router";

/** A part's common name, by which the others know it, whatever its ServiceAccount is called. */
export function commonName(part: ManagedPart | "operator", namespace: string): string {
  return `system:serviceaccount:${namespace}:${part}`;
}

export function leafRequest(part: ManagedPart, namespace: string): LeafRequest {
  // a router only calls
  return { subject: `CN=${commonName(part, namespace)}`, dnsNames: part === "router" ? [] : [serverName(part)] };
}

/** @param service of the operators' API, by whose name kube-apiserver checks the certificate. */
export function operatorRequest(namespace: string, service: string | undefined): LeafRequest {
  const api = service === undefined ? [] : [`${service}.${namespace}.svc`];
  return { subject: `CN=${commonName("operator", namespace)}`, dnsNames: [serverName("operator"), ...api] };
}
