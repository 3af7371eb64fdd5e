import { writeFileSync } from "node:fs";
import { stringify } from "yaml";
import { type KeyPairFiles } from "./certificates.ts";

/** Writes a kubeconfig (0600) with one context that names the certificates by their paths. */
export function writeKubeconfig(path: string, server: string, authority: string, user: KeyPairFiles): string {
  const name = "substrate-local";
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name, cluster: { server, "certificate-authority": authority } }],
    users: [{ name, user: { "client-certificate": user.cert, "client-key": user.key } }],
    contexts: [{ name, context: { cluster: name, user: name, namespace: "default" } }],
    "current-context": name,
  };
  writeFileSync(path, stringify(config), { mode: 0o600 });
  return path;
}
