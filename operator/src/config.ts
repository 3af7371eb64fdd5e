import { parseArgs } from "node:util";
import { splitAddress } from "@substrate/lib/listen.ts";

export interface OperatorConfig {
  /** Undefined inside a cluster: the pod's ServiceAccount is used. */
  kubeconfig: string | undefined;
  namespace: string;
  grpcListen: string;
  /** `host:port` that routers dial. */
  advertiseAddress: string;
  apiListen: string;
  apiTlsCert: string;
  apiTlsKey: string;
  requestheaderCa: string;
  requestheaderAllowedNames: string[];
  tlsCert: string;
  tlsKey: string;
  tlsCa: string;
  routerUrl: string;
  metricsListen: string;
  logLevel: string;
}

const usage = `operator: places actors on nodes, keeps their status, serves suspend, resume, log and proxy

  --kubeconfig FILE                    default: the pod's ServiceAccount
  --namespace NAME                     where the parts and their Leases are (default substrate-system)
  --grpc-listen HOST:PORT              WakeService for routers (mutual TLS)
  --advertise-address HOST:PORT        how routers reach it; goes into the operator's Lease
  --api-listen HOST:PORT               the aggregated API (HTTPS)
  --api-tls-cert FILE, --api-tls-key FILE
                                       its server certificate, as the APIService's caBundle expects it
  --requestheader-ca FILE              authority of kube-apiserver's front-proxy certificate
  --requestheader-allowed-names NAME   its common name; may be repeated
  --tls-cert FILE, --tls-key FILE, --tls-ca FILE
                                       this part's certificate among the parts
  --router-url URL                     where actors/proxy forwards to
  --metrics-listen HOST:PORT           /metrics, /healthz, /readyz
  --log-level LEVEL                    error, warn, info (default) or debug
`;

const logLevels = ["error", "warn", "info", "debug"];

/** Throws an Error whose message is the whole help when a flag is missing or wrong. */
export function parseConfig(argv: readonly string[]): OperatorConfig {
  try {
    return parse(argv);
  } catch (error) {
    throw new Error(`${error instanceof Error ? error.message : String(error)}\n\n${usage}`, { cause: error });
  }
}

function parse(argv: readonly string[]): OperatorConfig {
  const text = { type: "string" } as const;
  const { values } = parseArgs({
    args: [...argv],
    options: {
      kubeconfig: text,
      namespace: { ...text, default: "substrate-system" },
      "grpc-listen": text,
      "advertise-address": text,
      "api-listen": text,
      "api-tls-cert": text,
      "api-tls-key": text,
      "requestheader-ca": text,
      "requestheader-allowed-names": { ...text, multiple: true },
      "tls-cert": text,
      "tls-key": text,
      "tls-ca": text,
      "router-url": text,
      "metrics-listen": text,
      "log-level": { ...text, default: "info" },
    },
  });
  const required = (flag: Exclude<keyof typeof values, "requestheader-allowed-names">): string => {
    const value = values[flag];
    if (value === undefined || value === "") throw new Error(`--${flag} is missing`);
    return value;
  };
  const address = (flag: "grpc-listen" | "advertise-address" | "api-listen" | "metrics-listen"): string => {
    const value = required(flag);
    splitAddress(value);
    return value;
  };
  const allowedNames = values["requestheader-allowed-names"] ?? [];
  if (allowedNames.length === 0) throw new Error("--requestheader-allowed-names is missing: name at least one");
  const logLevel = values["log-level"];
  if (!logLevels.includes(logLevel)) throw new Error(`--log-level "${logLevel}" is not one of ${logLevels.join(", ")}`);
  const routerUrl = required("router-url");
  if (!/^https?:$/.test(URL.parse(routerUrl)?.protocol ?? "")) {
    throw new Error(`--router-url "${routerUrl}" is not a URL like http://127.0.0.1:8080`);
  }
  return {
    kubeconfig: values.kubeconfig,
    namespace: values.namespace,
    grpcListen: address("grpc-listen"),
    advertiseAddress: address("advertise-address"),
    apiListen: address("api-listen"),
    apiTlsCert: required("api-tls-cert"),
    apiTlsKey: required("api-tls-key"),
    requestheaderCa: required("requestheader-ca"),
    requestheaderAllowedNames: allowedNames,
    tlsCert: required("tls-cert"),
    tlsKey: required("tls-key"),
    tlsCa: required("tls-ca"),
    routerUrl,
    metricsListen: address("metrics-listen"),
    logLevel,
  };
}
