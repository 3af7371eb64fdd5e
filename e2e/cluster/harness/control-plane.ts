import { mkdirSync, writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { type KubeClient, KubeError } from "@substrate/lib/kube/client.ts";
import { FRONT_PROXY_NAME } from "@substrate/local/control-plane/flags.ts";
import { SupervisedProcess } from "@substrate/local/processes/supervised.ts";
import { type ClusterToolPaths } from "@substrate/local/tools/find.ts";
import { type Addresses } from "./addresses.ts";
import { inNamespace } from "./network.ts";
import { proxyConfig } from "./node-files.ts";
import { type ClusterPki } from "./pki.ts";
import { type ClusterState } from "./state.ts";

const GRACE_MS = 2_000;
const READY_TIMEOUT_MS = 90_000;
const POLL_MS = 50;
const ETCD = "http://127.0.0.1:2379";

/** How soon the cluster takes note of a node that is silent. */
export interface Timing {
  /** Seconds of silence after which a node is NotReady. */
  nodeGraceSeconds: number;
  /** Seconds that pods without a toleration of their own stay on such a node. */
  evictAfterSeconds: number;
}

function apiserverFlags(cluster: Addresses, pki: ClusterPki, timing: Timing, scratch: string): string[] {
  return [
    `--advertise-address=${cluster.controlPlane}`,
    "--secure-port=6443",
    `--etcd-servers=${ETCD}`,
    `--cert-dir=${scratch}`,
    `--tls-cert-file=${pki.apiserver.cert}`,
    `--tls-private-key-file=${pki.apiserver.key}`,
    `--client-ca-file=${pki.authority}`,
    `--kubelet-client-certificate=${pki.kubeletClient.cert}`,
    `--kubelet-client-key=${pki.kubeletClient.key}`,
    `--kubelet-certificate-authority=${pki.authority}`,
    "--kubelet-preferred-address-types=InternalIP",
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    `--service-account-key-file=${pki.serviceAccount.publicKey}`,
    `--service-account-signing-key-file=${pki.serviceAccount.privateKey}`,
    `--service-cluster-ip-range=${cluster.services}`,
    "--allow-privileged=true",
    `--default-not-ready-toleration-seconds=${timing.evictAfterSeconds}`,
    `--default-unreachable-toleration-seconds=${timing.evictAfterSeconds}`,
    `--requestheader-client-ca-file=${pki.frontProxyAuthority}`,
    `--requestheader-allowed-names=${FRONT_PROXY_NAME}`,
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    `--proxy-client-cert-file=${pki.frontProxyClient.cert}`,
    `--proxy-client-key-file=${pki.frontProxyClient.key}`,
    // straight to the pods behind a Service: what is reached is known to live
    "--enable-aggregator-routing=true",
    "--profiling=false",
  ];
}

function controllerManagerFlags(cluster: Addresses, pki: ClusterPki, timing: Timing): string[] {
  return [
    `--kubeconfig=${pki.kubeconfigs.controllerManager}`,
    "--use-service-account-credentials",
    `--service-account-private-key-file=${pki.serviceAccount.privateKey}`,
    `--root-ca-file=${pki.authority}`,
    `--cluster-cidr=${cluster.pods}`,
    `--service-cluster-ip-range=${cluster.services}`,
    "--leader-elect=false",
    "--node-monitor-period=1s",
    `--node-monitor-grace-period=${timing.nodeGraceSeconds}s`,
    "--profiling=false",
  ];
}

export interface ControlPlaneOptions {
  state: ClusterState;
  tools: ClusterToolPaths;
  pki: ClusterPki;
  client: KubeClient;
  environment: NodeJS.ProcessEnv;
  timing: Timing;
  say: (line: string) => void;
}

/** Starts a program again and again in the control plane's network namespace. */
export function inControlPlane(
  { state, environment, say }: Pick<ControlPlaneOptions, "state" | "environment" | "say">,
  name: string,
  program: string,
  args: readonly string[],
  more: NodeJS.ProcessEnv = {},
): SupervisedProcess {
  const [starter, ...rest] = inNamespace(state.addresses.namespace, program, args);
  return new SupervisedProcess({
    name,
    command: () => ({ program: starter, arguments: rest, environment: { ...environment, ...more } }),
    logFile: state.file("log", `${name}.log`),
    recordFile: state.file("run", `${name}.json`),
    graceMs: GRACE_MS,
    say,
  });
}

/** etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kube-proxy for the way to cluster IPs. */
export class ClusterControlPlane {
  readonly apiserver: SupervisedProcess;
  readonly #client: KubeClient;
  readonly #etcd: SupervisedProcess;
  readonly #others: readonly SupervisedProcess[];

  constructor(options: ControlPlaneOptions) {
    const { state, tools, pki, timing, client } = options;
    const { addresses } = state;
    this.#client = client;
    const scratch = state.file("run", "apiserver");
    mkdirSync(scratch);
    const proxy = state.file("kube-proxy.yaml");
    // it asks for a Node object and takes the first node's: only NodePorts of that node would be wrong here
    writeFileSync(proxy, proxyConfig(addresses, pki.kubeconfigs.proxy, "n1"));
    this.#etcd = inControlPlane(options, "etcd", tools.etcd, [
      `--data-dir=${state.file("etcd")}`,
      ...[`--listen-client-urls=${ETCD}`, `--advertise-client-urls=${ETCD}`],
      "--listen-peer-urls=http://127.0.0.1:2380",
      "--unsafe-no-fsync",
      "--log-level=warn",
    ]);
    this.apiserver = inControlPlane(
      options,
      "kube-apiserver",
      tools.kubeApiserver,
      apiserverFlags(addresses, pki, timing, scratch),
    );
    this.#others = [
      inControlPlane(
        options,
        "kube-controller-manager",
        tools.kubeControllerManager,
        controllerManagerFlags(addresses, pki, timing),
      ),
      inControlPlane(options, "kube-scheduler", tools.kubeScheduler, [
        `--kubeconfig=${pki.kubeconfigs.scheduler}`,
        "--leader-elect=false",
      ]),
      inControlPlane(options, "kube-proxy", tools.kubeProxy, [`--config=${proxy}`]),
    ];
  }

  /** Resolves when the API server is ready; the others come up meanwhile. */
  async start(): Promise<void> {
    await Promise.all([this.#etcd.start(), this.apiserver.start()]);
    await this.ready();
    await Promise.all(this.#others.map((part) => part.start()));
  }

  /** @throws after 90 s, with the last answer. */
  async ready(): Promise<void> {
    const end = performance.now() + READY_TIMEOUT_MS;
    for (;;) {
      const problem = await this.#problem();
      if (problem === undefined) return;
      if (performance.now() > end) {
        throw new Error(
          `kube-apiserver of the test cluster is not ready after ${READY_TIMEOUT_MS / 1000} s: ${problem}`,
        );
      }
      await delay(POLL_MS);
    }
  }

  async #problem(): Promise<string | undefined> {
    try {
      const { status, body } = await this.#client.raw("GET", "/readyz");
      body.resume();
      return status === 200 ? undefined : `/readyz answers ${status}`;
    } catch (error) {
      if (error instanceof KubeError) return error.message;
      throw error;
    }
  }

  /** Nothing of it is kept, so nothing has to end well. */
  async stop(): Promise<void> {
    await Promise.all([...this.#others, this.apiserver, this.#etcd].map((part) => part.stop("SIGKILL")));
  }
}
