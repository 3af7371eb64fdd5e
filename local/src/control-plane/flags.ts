import { type KeyPairFiles } from "../certificates.ts";

/** The name that kube-apiserver's proxy shows to aggregated API servers. */
export const FRONT_PROXY_NAME = "front-proxy-client";
/** Nothing routes to cluster IPs here; the range only has to be one that nobody else uses. */
const SERVICE_RANGE = "10.215.0.0/24";

export interface ControlPlaneFiles {
  etcdData: string;
  etcd: KeyPairFiles;
  etcdAuthority: string;
  authority: string;
  frontProxyAuthority: string;
  frontProxyClient: KeyPairFiles;
  apiserver: KeyPairFiles;
  serviceAccountKey: string;
  serviceAccountPublicKey: string;
  /** kube-apiserver insists on a folder for certificates that it would make itself. */
  apiserverScratch: string;
  controllerManagerKubeconfig: string;
}

export interface ControlPlanePorts {
  etcd: number;
  etcdPeer: number;
  apiserver: number;
}

/**
 * etcd on loopback, both of its ports closed to everybody without a certificate of its own authority.
 * @param fsync false loses the newest writes in a power cut (not in a crash of etcd): for tests.
 */
export function etcdFlags(files: ControlPlaneFiles, ports: ControlPlanePorts, fsync: boolean): string[] {
  const client = `https://127.0.0.1:${ports.etcd}`;
  const peer = `https://127.0.0.1:${ports.etcdPeer}`;
  return [
    `--name=local`,
    `--data-dir=${files.etcdData}`,
    `--listen-client-urls=${client}`,
    `--advertise-client-urls=${client}`,
    `--listen-peer-urls=${peer}`,
    `--initial-advertise-peer-urls=${peer}`,
    `--initial-cluster=local=${peer}`,
    `--cert-file=${files.etcd.cert}`,
    `--key-file=${files.etcd.key}`,
    `--trusted-ca-file=${files.etcdAuthority}`,
    "--client-cert-auth",
    `--peer-cert-file=${files.etcd.cert}`,
    `--peer-key-file=${files.etcd.key}`,
    `--peer-trusted-ca-file=${files.etcdAuthority}`,
    "--peer-client-cert-auth",
    "--log-level=warn",
    ...(fsync ? [] : ["--unsafe-no-fsync"]),
  ];
}

export function apiserverFlags(files: ControlPlaneFiles, ports: ControlPlanePorts): string[] {
  return [
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    `--secure-port=${ports.apiserver}`,
    `--etcd-servers=https://127.0.0.1:${ports.etcd}`,
    `--etcd-cafile=${files.etcdAuthority}`,
    `--etcd-certfile=${files.etcd.cert}`,
    `--etcd-keyfile=${files.etcd.key}`,
    `--cert-dir=${files.apiserverScratch}`,
    `--tls-cert-file=${files.apiserver.cert}`,
    `--tls-private-key-file=${files.apiserver.key}`,
    `--client-ca-file=${files.authority}`,
    "--authorization-mode=RBAC",
    "--anonymous-auth=false",
    "--service-account-issuer=https://kubernetes.default.svc",
    `--service-account-key-file=${files.serviceAccountPublicKey}`,
    `--service-account-signing-key-file=${files.serviceAccountKey}`,
    `--service-cluster-ip-range=${SERVICE_RANGE}`,
    "--endpoint-reconciler-type=none",
    // as clusters have it, so that what is made for clusters is accepted here; no kubelet would run it
    "--allow-privileged",
    // ServiceAccount needs pods' machinery; TaintNodesByCondition would taint the Node object for ever, as no kubelet
    // reports for it
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
    `--requestheader-client-ca-file=${files.frontProxyAuthority}`,
    `--requestheader-allowed-names=${FRONT_PROXY_NAME}`,
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    `--proxy-client-cert-file=${files.frontProxyClient.cert}`,
    `--proxy-client-key-file=${files.frontProxyClient.key}`,
    "--profiling=false",
  ];
}

/** Only the controllers without which deleting does not end and namespaces lack their ServiceAccount. */
export function controllerManagerFlags(files: ControlPlaneFiles): string[] {
  return [
    `--kubeconfig=${files.controllerManagerKubeconfig}`,
    "--controllers=namespace-controller,garbage-collector-controller,serviceaccount-controller,serviceaccount-token-controller",
    "--use-service-account-credentials",
    `--service-account-private-key-file=${files.serviceAccountKey}`,
    `--root-ca-file=${files.authority}`,
    "--leader-elect=false",
    // nobody scrapes it, and its port would be one more to keep free
    "--secure-port=0",
    "--profiling=false",
  ];
}
