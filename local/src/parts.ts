import { join } from "node:path";
import { networkInterfaces } from "node:os";
import { type Authority, type KeyPairFiles } from "./certificates.ts";
import { keyPairFiles } from "./control-plane/pki.ts";
import { FRONT_PROXY_NAME } from "./control-plane/flags.ts";
import { writeKubeconfig } from "./kubeconfig.ts";
import { type StateFolder } from "./state-folder.ts";
import { type ToolPaths } from "./tools/find.ts";

export const SYSTEM_NAMESPACE = "substrate-system";
export const DOMAIN = "actors.localhost";
/** In the pod's own network namespace: no other cluster can have them taken. */
const ATELET_PORT = 7443;
const ATELET_METRICS_PORT = 9464;
/** What of the pod's memory limit is neither booked nor lent: supervisor, atelet, crane and umoci. */
const ATELET_RESERVE_BYTES = 512 * 1024 * 1024;
/** Suspending every running actor to the local disk takes far less; uploads that do not end in time go on at the next start. */
export const ATELET_GRACE_MS = 15_000;
/** No other operator competes: this is how long one that was killed is waited for. */
const OPERATOR_LEASE_SECONDS = 6;
const ROUTER_GRACE_SECONDS = 5;

const root = join(import.meta.dirname, "../..");

export type Part = "operator" | "atelet" | "router";

export interface PartPorts {
  operator: number;
  operatorApi: number;
  operatorMetrics: number;
  router: number;
  routerMetrics: number;
}

/** What a part is started with beside its own flags. */
export interface PartIdentity {
  kubeconfig: string;
  tls: KeyPairFiles;
  /** Signs all parts' certificates. */
  authority: string;
}

/**
 * A part's certificate, which is its identity towards the API server and the other parts, and its kubeconfig.
 * @param server URL of the API server as this part reaches it.
 */
export async function issuePart(
  part: Part,
  state: StateFolder,
  authority: Authority,
  server: string,
  addresses: readonly string[],
): Promise<PartIdentity> {
  const tls = await authority.issue(
    {
      subject: `CN=system:serviceaccount:${SYSTEM_NAMESPACE}:${part}`,
      // the second one is what kube-apiserver expects of the Service of the operator's API
      dnsNames: [`${part}.substrate.internal`, `${part}.${SYSTEM_NAMESPACE}.svc`, "localhost"],
      ipAddresses: ["127.0.0.1", ...addresses],
    },
    keyPairFiles(state, part),
  );
  const kubeconfig = writeKubeconfig(state.file("kube", `${part}.yaml`), server, authority.files.cert, tls);
  return { kubeconfig, tls, authority: authority.files.cert };
}

function common(identity: PartIdentity): string[] {
  return [
    "--kubeconfig",
    identity.kubeconfig,
    "--namespace",
    SYSTEM_NAMESPACE,
    "--tls-cert",
    identity.tls.cert,
    "--tls-key",
    identity.tls.key,
    "--tls-ca",
    identity.authority,
  ];
}

export function operatorArguments(identity: PartIdentity, ports: PartPorts, frontProxyAuthority: string): string[] {
  return [
    join(root, "operator/src/main.ts"),
    ...common(identity),
    "--grpc-listen",
    `127.0.0.1:${ports.operator}`,
    "--advertise-address",
    `127.0.0.1:${ports.operator}`,
    "--api-listen",
    `127.0.0.1:${ports.operatorApi}`,
    "--requestheader-ca",
    frontProxyAuthority,
    "--requestheader-allowed-names",
    FRONT_PROXY_NAME,
    "--router-url",
    `http://127.0.0.1:${ports.router}`,
    "--lease-duration",
    `${OPERATOR_LEASE_SECONDS}`,
    "--metrics-listen",
    `127.0.0.1:${ports.operatorMetrics}`,
  ];
}

export function routerArguments(identity: PartIdentity, ports: PartPorts): string[] {
  return [
    join(root, "router/src/main.ts"),
    ...common(identity),
    "--listen",
    `127.0.0.1:${ports.router}`,
    "--domain",
    DOMAIN,
    "--metrics-listen",
    `127.0.0.1:${ports.routerMetrics}`,
    "--shutdown-grace",
    `${ROUTER_GRACE_SECONDS}`,
  ];
}

/** A bucket of an S3 server of this machine. */
export interface LocalStore {
  /** By which Templates name it. */
  name: string;
  bucket: string;
  /** On loopback, plain HTTP. */
  port: number;
  /** Absolute: a folder with accessKeyId and secretAccessKey. */
  credentialsDir: string;
}

export interface AteletSettings {
  nodeName: string;
  state: StateFolder;
  tools: ToolPaths;
  address: string;
  /** The machine's, as the pod sees it. */
  hostAddress: string;
  cgroupPath: string;
  /** Beside `default`. */
  stores: readonly LocalStore[];
  /** Beside those of every local cluster. */
  flags: readonly string[];
}

/** The machine's own addresses: actors must not reach its services by them. */
function machineAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .filter((entry) => entry.family === "IPv4" && !entry.internal)
    .map((entry) => `${entry.address}/32`);
}

export function ateletArguments(identity: PartIdentity, settings: AteletSettings): string[] {
  const { nodeName, state, tools, address, hostAddress, cgroupPath, stores, flags } = settings;
  return [
    join(root, "atelet/src/supervisor/main.ts"),
    ...common(identity),
    "--node-name",
    nodeName,
    "--state-dir",
    state.file("node"),
    "--advertise-address",
    address,
    "--port",
    `${ATELET_PORT}`,
    "--metrics-listen",
    `${address}:${ATELET_METRICS_PORT}`,
    "--runsc",
    tools.runsc,
    "--crane",
    tools.crane,
    "--umoci",
    tools.umoci,
    "--store",
    `default=file://${state.file("store")}`,
    ...stores.flatMap(({ name, bucket, port, credentialsDir }) => [
      ...["--store", `${name}=s3://${bucket}?endpoint=http://${hostAddress}:${port}`],
      ...["--store-credentials", `${name}=${credentialsDir}`],
    ]),
    "--cgroup-parent",
    cgroupPath,
    "--reserve-bytes",
    `${ATELET_RESERVE_BYTES}`,
    "--grace-ms",
    `${ATELET_GRACE_MS}`,
    "--allow-local-images",
    ...machineAddresses().flatMap((cidr) => ["--deny-cidr", cidr]),
    ...flags,
  ];
}

/** Base URL of each part's /healthz, /readyz and /metrics. */
export function metricsUrls(ports: PartPorts, ateletAddress: string): Record<Part, string> {
  return {
    operator: `http://127.0.0.1:${ports.operatorMetrics}`,
    atelet: `http://${ateletAddress}:${ATELET_METRICS_PORT}`,
    router: `http://127.0.0.1:${ports.routerMetrics}`,
  };
}
