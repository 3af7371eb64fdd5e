import { parseArgs } from "node:util";
import { splitAddress } from "@substrate/lib/listen.ts";
import { type TlsFiles } from "@substrate/lib/rpc/tls.ts";

/** Certificates that this operator makes itself, in Secrets whose names begin with `prefix`. */
export interface ManagedCertificates {
  prefix: string;
  certificateLifetimeMs: number;
  authorityLifetimeMs: number;
}

/** The front proxy's authority in files; without them it is read from the cluster. */
export interface FrontProxyFiles {
  caFile: string;
  allowedNames: string[];
}

/** The Service by which kube-apiserver reaches the operators' API. */
export interface ApiServiceTarget {
  name: string;
  port: number;
}

export interface OperatorConfig {
  /** Undefined inside a cluster: the pod's ServiceAccount is used. */
  kubeconfig: string | undefined;
  namespace: string;
  grpcListen: string;
  /** `host:port` that routers dial. */
  advertiseAddress: string;
  apiListen: string;
  /** `host:port` that other operators dial to hand on requests of the API. */
  apiAdvertiseAddress: string;
  certificates: { files: TlsFiles } | { managed: ManagedCertificates };
  frontProxy: FrontProxyFiles | undefined;
  /** Undefined: somebody else registers the API. */
  apiService: ApiServiceTarget | undefined;
  /** Name of the ClusterRole that owns what this operator makes for itself; undefined: nothing does. */
  owner: string | undefined;
  leaseDurationMs: number;
  routerUrl: string;
  metricsListen: string;
  /** design.md §7: fenceAfter. */
  nodeLostAfterMs: number;
  logLevel: string;
}

const usage = `operator: places actors on nodes, keeps their status, serves suspend, resume, log and proxy

  --kubeconfig FILE                    default: the pod's ServiceAccount
  --namespace NAME                     where the parts and their Leases are (default substrate-system)
  --grpc-listen HOST:PORT              WakeService for routers (mutual TLS)
  --advertise-address HOST:PORT        how routers reach it; goes into the operator's Lease
  --api-listen HOST:PORT               the aggregated API (HTTPS)
  --api-advertise-address HOST:PORT    how other operators reach it; goes into the operator's Lease
                                       (default: --api-listen)
  --tls-cert FILE, --tls-key FILE, --tls-ca FILE
                                       this part's certificate, read again when it changes: among the parts and
                                       of the API (names operator.substrate.internal, SERVICE.NAMESPACE.svc)
  --managed-certificates PREFIX        instead: make authority and certificates of all parts, in the Secrets
                                       PREFIX-ca, PREFIX-atelet-tls and PREFIX-router-tls
  --certificate-lifetime SECONDS       of the parts' certificates, renewed at two thirds of it (default 30 days)
  --authority-lifetime SECONDS         of their authority, at least 4 times that (default 10 years)
  --requestheader-ca FILE              authority of kube-apiserver's front-proxy certificate; without it, what the
                                       ConfigMap kube-system/extension-apiserver-authentication says
  --requestheader-allowed-names NAME   its common name; may be repeated
  --api-service NAME[:PORT]            keep the APIService: the Service of the operators' API (port 443)
  --owner NAME                         ClusterRole that owns the Secrets and the APIService, so that they go with it
  --lease-duration SECONDS             after which another operator takes over from one that is gone (default 10)
  --router-url URL                     where actors/proxy forwards to
  --metrics-listen HOST:PORT           /metrics, /healthz, /readyz
  --node-lost-after SECONDS            how long a node's Lease is not renewed, and its atelet silent, before its
                                       actors are said to be lost with it (default 40; less is for tests)
  --log-level LEVEL                    error, warn, info (default) or debug
`;

const logLevels = ["error", "warn", "info", "debug"];
const daySeconds = 24 * 60 * 60;
/** A change of authority takes until all that the old one has signed has ended, and there is one change at a time. */
const leastAuthorityLifetimes = 4;
/** Renewals take a few seconds to reach everybody. */
const leastCertificateLifetimeSeconds = 6;

/** Throws an Error whose message is the whole help when a flag is missing or wrong. */
export function parseConfig(argv: readonly string[]): OperatorConfig {
  try {
    return parse(argv);
  } catch (error) {
    throw new Error(`${error instanceof Error ? error.message : String(error)}\n\n${usage}`, { cause: error });
  }
}

const text = { type: "string" } as const;
const options = {
  kubeconfig: text,
  namespace: { ...text, default: "substrate-system" },
  "grpc-listen": text,
  "advertise-address": text,
  "api-listen": text,
  "api-advertise-address": text,
  "requestheader-ca": text,
  "requestheader-allowed-names": { ...text, multiple: true },
  "tls-cert": text,
  "tls-key": text,
  "tls-ca": text,
  "managed-certificates": text,
  "certificate-lifetime": { ...text, default: String(30 * daySeconds) },
  "authority-lifetime": { ...text, default: String(3650 * daySeconds) },
  "api-service": text,
  owner: text,
  "lease-duration": { ...text, default: "10" },
  "router-url": text,
  "metrics-listen": text,
  "node-lost-after": { ...text, default: "40" },
  "log-level": { ...text, default: "info" },
} as const;

type Values = ReturnType<typeof parseArgs<{ options: typeof options }>>["values"];
type TextFlag = Exclude<keyof typeof options, "requestheader-allowed-names">;

function parse(argv: readonly string[]): OperatorConfig {
  const { values } = parseArgs({ args: [...argv], options });
  const logLevel = values["log-level"];
  if (!logLevels.includes(logLevel)) throw new Error(`--log-level "${logLevel}" is not one of ${logLevels.join(", ")}`);
  const routerUrl = required(values, "router-url");
  if (!/^https?:$/.test(URL.parse(routerUrl)?.protocol ?? "")) {
    throw new Error(`--router-url "${routerUrl}" is not a URL like http://127.0.0.1:8080`);
  }
  const apiListen = address(values, "api-listen");
  return {
    kubeconfig: values.kubeconfig,
    namespace: values.namespace,
    grpcListen: address(values, "grpc-listen"),
    advertiseAddress: address(values, "advertise-address"),
    apiListen,
    apiAdvertiseAddress:
      values["api-advertise-address"] === undefined ? apiListen : address(values, "api-advertise-address"),
    certificates: certificates(values),
    frontProxy: frontProxy(values),
    apiService: apiService(values["api-service"]),
    owner: values.owner,
    leaseDurationMs: seconds(values, "lease-duration", 2) * 1_000,
    routerUrl,
    metricsListen: address(values, "metrics-listen"),
    nodeLostAfterMs: seconds(values, "node-lost-after", 1) * 1_000,
    logLevel,
  };
}

function required(values: Values, flag: TextFlag): string {
  const value = values[flag];
  if (value === undefined || value === "") throw new Error(`--${flag} is missing`);
  return value;
}

function address(values: Values, flag: TextFlag): string {
  const value = required(values, flag);
  splitAddress(value);
  return value;
}

function seconds(values: Values, flag: TextFlag, least: number): number {
  const value = Number(required(values, flag));
  if (!Number.isSafeInteger(value) || value < least) {
    throw new Error(`--${flag} "${values[flag] ?? ""}" is not a whole number of seconds of at least ${least}`);
  }
  return value;
}

function certificates(values: Values): OperatorConfig["certificates"] {
  const prefix = values["managed-certificates"];
  const files = ["tls-cert", "tls-key", "tls-ca"] as const;
  if (prefix === undefined) {
    if (files.every((flag) => values[flag] === undefined)) {
      throw new Error("certificates are missing: give --managed-certificates, or --tls-cert, --tls-key and --tls-ca");
    }
    const [certFile, keyFile, caFile] = files.map((flag) => required(values, flag)) as [string, string, string];
    return { files: { caFile, certFile, keyFile } };
  }
  const both = files.find((flag) => values[flag] !== undefined);
  if (both !== undefined) throw new Error(`--managed-certificates and --${both} exclude each other`);
  const certificate = seconds(values, "certificate-lifetime", leastCertificateLifetimeSeconds);
  const authority = seconds(values, "authority-lifetime", leastAuthorityLifetimes * certificate);
  return {
    managed: {
      prefix: required(values, "managed-certificates"),
      certificateLifetimeMs: certificate * 1_000,
      authorityLifetimeMs: authority * 1_000,
    },
  };
}

function frontProxy(values: Values): FrontProxyFiles | undefined {
  const allowedNames = values["requestheader-allowed-names"] ?? [];
  if (values["requestheader-ca"] === undefined && allowedNames.length === 0) return undefined;
  if (allowedNames.length === 0) throw new Error("--requestheader-allowed-names is missing: name at least one");
  return { caFile: required(values, "requestheader-ca"), allowedNames };
}

function apiService(value: string | undefined): ApiServiceTarget | undefined {
  if (value === undefined) return undefined;
  const match = /^([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)(?::(\d{1,5}))?$/.exec(value);
  const name = match?.[1];
  const port = Number(match?.[2] ?? 443);
  if (name === undefined || port < 1 || port > 65_535) {
    throw new Error(`--api-service "${value}" is not a Service's NAME or NAME:PORT`);
  }
  return { name, port };
}
