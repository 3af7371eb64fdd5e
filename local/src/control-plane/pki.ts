import { generateKeyPairSync } from "node:crypto";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { Authority, type KeyPairFiles } from "../certificates.ts";
import { type StateFolder } from "../state-folder.ts";
import { type ControlPlaneFiles, FRONT_PROXY_NAME } from "./flags.ts";

export interface ControlPlanePki {
  files: ControlPlaneFiles;
  admin: KeyPairFiles;
  controllerManager: KeyPairFiles;
  /** Signs the API server's and all clients' certificates, and those by which the parts know each other. */
  authority: Authority;
}

/** A state folder, as far as files of certificates go. */
type Files = Pick<StateFolder, "file">;

export function keyPairFiles(state: Files, name: string): KeyPairFiles {
  return { cert: state.file("pki", `${name}.crt`), key: state.file("pki", `${name}.key`) };
}

/** The key that signs ServiceAccount tokens; kept, so that tokens outlive a restart. */
export function serviceAccountKeys(state: Files): { privateKey: string; publicKey: string } {
  const privateKey = state.file("pki", "service-account.key");
  const publicKey = state.file("pki", "service-account.pub");
  if (!existsSync(privateKey) || !existsSync(publicKey)) {
    const keys = generateKeyPairSync("ec", {
      namedCurve: "P-256",
      publicKeyEncoding: { type: "spki", format: "pem" },
      privateKeyEncoding: { type: "sec1", format: "pem" },
    });
    writeFileSync(privateKey, keys.privateKey, { mode: 0o600 });
    writeFileSync(publicKey, keys.publicKey);
  }
  return { privateKey, publicKey };
}

/** Authorities are kept in the state folder, everything below them is made anew. */
export async function makeControlPlanePki(
  state: StateFolder,
  apiserverAddresses: readonly string[],
): Promise<ControlPlanePki> {
  const open = (name: string): Promise<Authority> => Authority.open(`substrate-${name}`, keyPairFiles(state, name));
  // three authorities: who may talk to etcd and who may speak for others (front proxy) must not follow from being a
  // client of the API server
  const [authority, etcdAuthority, frontProxyAuthority] = await Promise.all([
    open("ca"),
    open("etcd-ca"),
    open("front-proxy-ca"),
  ]);
  const loopback = { dnsNames: ["localhost"], ipAddresses: ["127.0.0.1"] };
  const [etcd, frontProxyClient, apiserver, admin, controllerManager] = await Promise.all([
    etcdAuthority.issue({ subject: "CN=etcd", ...loopback }, keyPairFiles(state, "etcd")),
    frontProxyAuthority.issue({ subject: `CN=${FRONT_PROXY_NAME}` }, keyPairFiles(state, "front-proxy")),
    authority.issue(
      {
        subject: "CN=kube-apiserver",
        dnsNames: [...loopback.dnsNames, "kubernetes.default.svc"],
        ipAddresses: [...loopback.ipAddresses, ...apiserverAddresses],
      },
      keyPairFiles(state, "apiserver"),
    ),
    authority.issue({ subject: "CN=admin,O=system:masters" }, keyPairFiles(state, "admin")),
    authority.issue({ subject: "CN=system:kube-controller-manager" }, keyPairFiles(state, "controller-manager")),
  ]);
  const serviceAccount = serviceAccountKeys(state);
  const apiserverScratch = state.file("run", "apiserver");
  mkdirSync(apiserverScratch, { recursive: true });
  return {
    authority,
    admin,
    controllerManager,
    files: {
      etcdData: state.file("etcd"),
      etcd,
      etcdAuthority: etcdAuthority.files.cert,
      authority: authority.files.cert,
      frontProxyAuthority: frontProxyAuthority.files.cert,
      frontProxyClient,
      apiserver,
      serviceAccountKey: serviceAccount.privateKey,
      serviceAccountPublicKey: serviceAccount.publicKey,
      apiserverScratch,
      controllerManagerKubeconfig: state.file("kube", "controller-manager.yaml"),
    },
  };
}
