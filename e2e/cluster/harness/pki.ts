import { Authority, type KeyPairFiles } from "@substrate/local/certificates.ts";
import { keyPairFiles, serviceAccountKeys } from "@substrate/local/control-plane/pki.ts";
import { FRONT_PROXY_NAME } from "@substrate/local/control-plane/flags.ts";
import { writeKubeconfig } from "@substrate/local/kubeconfig.ts";
import { type NodeAddresses } from "./addresses.ts";
import { type ClusterState } from "./state.ts";

/** Whom the control plane's programs are to each other, and the kubeconfigs of those that ask the API server. */
export interface ClusterPki {
  authority: string;
  frontProxyAuthority: string;
  frontProxyClient: KeyPairFiles;
  apiserver: KeyPairFiles;
  /** The API server towards kubelets. */
  kubeletClient: KeyPairFiles;
  serviceAccount: { privateKey: string; publicKey: string };
  kubeconfigs: { admin: string; controllerManager: string; scheduler: string; proxy: string; dns: string };
  nodes: ReadonlyMap<string, { files: KeyPairFiles; kubeconfig: string }>;
}

export async function makeClusterPki(state: ClusterState, nodes: readonly NodeAddresses[]): Promise<ClusterPki> {
  const { controlPlane, apiService } = state.addresses;
  const open = (name: string): Promise<Authority> => Authority.open(`substrate-${name}`, keyPairFiles(state, name));
  const [authority, frontProxyAuthority] = await Promise.all([open("ca"), open("front-proxy-ca")]);
  const { cert } = authority.files;
  const kubeconfig = async (name: string, subject: string): Promise<string> => {
    const files = await authority.issue({ subject }, keyPairFiles(state, name));
    return writeKubeconfig(state.file("kube", `${name}.yaml`), `https://${controlPlane}:6443`, cert, files);
  };
  const service = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
  ];
  const apiserver = await authority.issue(
    { subject: "CN=kube-apiserver", dnsNames: service, ipAddresses: [controlPlane, apiService, "127.0.0.1"] },
    keyPairFiles(state, "apiserver"),
  );
  const kubeletClient = await authority.issue(
    { subject: "CN=kube-apiserver-kubelet-client,O=system:masters" },
    keyPairFiles(state, "kubelet-client"),
  );
  const frontProxyClient = await frontProxyAuthority.issue(
    { subject: `CN=${FRONT_PROXY_NAME}` },
    keyPairFiles(state, "front-proxy-client"),
  );
  const ofNodes = nodes.map(async ({ name, address }) => {
    const subject = `CN=system:node:${name},O=system:nodes`;
    const files = await authority.issue(
      { subject, dnsNames: [name], ipAddresses: [address] },
      keyPairFiles(state, `kubelet-${name}`),
    );
    return [name, { files, kubeconfig: await kubeconfig(name, subject) }] as const;
  });
  return {
    authority: cert,
    frontProxyAuthority: frontProxyAuthority.files.cert,
    frontProxyClient,
    apiserver,
    kubeletClient,
    serviceAccount: serviceAccountKeys(state),
    kubeconfigs: {
      admin: await kubeconfig("admin", "CN=admin,O=system:masters"),
      controllerManager: await kubeconfig("controller-manager", "CN=system:kube-controller-manager"),
      scheduler: await kubeconfig("scheduler", "CN=system:kube-scheduler"),
      proxy: await kubeconfig("proxy", "CN=system:kube-proxy"),
      dns: await kubeconfig("dns", "CN=coredns,O=system:masters"),
    },
    nodes: new Map(await Promise.all(ofNodes)),
  };
}
