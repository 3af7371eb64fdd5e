import { randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { dirname } from "node:path";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { type SupervisedProcess } from "@substrate/local/processes/supervised.ts";
import { type Addresses } from "./addresses.ts";
import { type ControlPlaneOptions, inControlPlane } from "./control-plane.ts";

const READY_TIMEOUT_MS = 30_000;
const POLL_MS = 50;
const S3_PORT = 9000;
const REGISTRY_PORT = 5000;

export interface S3Settings {
  url: string;
  accessKeyId: string;
  secretAccessKey: string;
  /** It is there. */
  bucket: string;
}

function corefile(cluster: Addresses, kubeconfig: string): string {
  return `.:53 {
  bind ${cluster.controlPlane}
  errors
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig ${kubeconfig}
  }
  cache 5
}
`;
}

/** The Service that pods' resolv.conf names, in front of the resolver of the control plane. */
async function applyDnsService(client: KubeClient, cluster: Addresses): Promise<void> {
  const ports = ["UDP", "TCP"].map((protocol) => ({ name: `dns-${protocol.toLowerCase()}`, port: 53, protocol }));
  const query = "fieldManager=test-cluster&force=true";
  const contentType = "application/apply-patch+yaml";
  await client.request("PATCH", `/api/v1/namespaces/kube-system/services/kube-dns?${query}`, {
    contentType,
    body: {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "kube-dns", namespace: "kube-system", labels: { "k8s-app": "kube-dns" } },
      spec: { clusterIP: cluster.dnsService, ports },
    },
  });
  await client.request("PATCH", `/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns?${query}`, {
    contentType,
    body: {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: {
        name: "kube-dns",
        namespace: "kube-system",
        labels: { "kubernetes.io/service-name": "kube-dns" },
      },
      addressType: "IPv4",
      endpoints: [{ addresses: [cluster.controlPlane], conditions: { ready: true } }],
      ports,
    },
  });
}

/** What a cluster's surroundings have besides: resolver, object store, image registry. All at the control plane's address. */
export class ClusterServices {
  readonly s3: S3Settings;
  /** `HOST:PORT`, plain HTTP, known to the nodes. */
  readonly registry: string;
  readonly #options: ControlPlaneOptions;
  readonly #parts: readonly SupervisedProcess[];
  readonly #certsFolder: string;

  /** @param certsFolder gets the nodes' setting for the registry. */
  constructor(options: ControlPlaneOptions, certsFolder: string) {
    const { state, tools, pki } = options;
    const { controlPlane } = state.addresses;
    this.#options = options;
    this.#certsFolder = certsFolder;
    this.registry = `${controlPlane}:${REGISTRY_PORT}`;
    this.s3 = {
      url: `http://${controlPlane}:${S3_PORT}`,
      accessKeyId: `test-${randomBytes(4).toString("hex")}`,
      secretAccessKey: randomBytes(16).toString("hex"),
      bucket: "substrate",
    };
    // a folder of its file system is a bucket of versitygw
    mkdirSync(state.file("s3", this.s3.bucket), { recursive: true });
    mkdirSync(state.file("registry"));
    writeFileSync(state.file("Corefile"), corefile(state.addresses, pki.kubeconfigs.dns));
    this.#parts = [
      inControlPlane(options, "coredns", tools.coredns, ["-conf", state.file("Corefile")]),
      inControlPlane(
        options,
        "versitygw",
        tools.versitygw,
        ["--port", `${controlPlane}:${S3_PORT}`, "--quiet", "--keep-alive", "posix", state.file("s3")],
        { ROOT_ACCESS_KEY_ID: this.s3.accessKeyId, ROOT_SECRET_ACCESS_KEY: this.s3.secretAccessKey },
      ),
      inControlPlane(options, "registry", tools.crane, [
        ...["registry", "serve", "--address", this.registry, "--disk", state.file("registry")],
      ]),
    ];
    const hosts = `${this.#certsFolder}/${this.registry}/hosts.toml`;
    mkdirSync(dirname(hosts), { recursive: true });
    const server = `http://${this.registry}`;
    writeFileSync(hosts, `server = "${server}"\n[host."${server}"]\n  capabilities = ["pull", "resolve"]\n`);
  }

  /** Needs a ready API server. */
  async start(): Promise<void> {
    const { client, state } = this.#options;
    await Promise.all([applyDnsService(client, state.addresses), ...this.#parts.map((part) => part.start())]);
    await Promise.all([53, S3_PORT, REGISTRY_PORT].map((port) => listening(state.addresses.controlPlane, port)));
  }

  async stop(): Promise<void> {
    await Promise.all(this.#parts.map((part) => part.stop("SIGKILL")));
  }
}

/** Waits until something takes connections. @throws after 30 s. */
async function listening(host: string, port: number): Promise<void> {
  const end = performance.now() + READY_TIMEOUT_MS;
  for (;;) {
    const socket = createConnection({ host, port });
    try {
      await once(socket, "connect");
      return;
    } catch (error) {
      if (performance.now() > end) throw new Error(`nothing listens on ${host}:${port}`, { cause: error });
    } finally {
      socket.destroy();
    }
    await delay(POLL_MS);
  }
}
