import { Command, InvalidArgumentError } from "commander";
import { type RouterLimits } from "./router.ts";

export interface RouterConfig {
  /** Undefined: the pod's ServiceAccount. */
  kubeconfig: string | undefined;
  /** Where the parts' Leases are. */
  namespace: string;
  listen: string;
  domain: string;
  tlsCert: string;
  tlsKey: string;
  tlsCa: string;
  metricsListen: string;
  logLevel: string;
  limits: RouterLimits;
}

interface Flags extends Omit<RouterConfig, "limits"> {
  maxConnections: number;
  maxHeld: number;
  maxHeldPerActor: number;
  wakeTimeout: number;
  headersTimeout: number;
  connectTimeout: number;
  reattachPatience: number;
  refusedPatience: number;
  shutdownGrace: number;
}

/** Reads the flags; prints help or what is wrong and ends the process where they can't be used. */
export function readConfig(argv: readonly string[]): RouterConfig {
  const flags = new Command("router")
    .description("Brings HTTP requests to actors: finds, holds, wakes, counts.")
    .option("--kubeconfig <file>", "kubeconfig of the API server; without it, the pod's ServiceAccount")
    .option("--namespace <name>", "namespace of the Leases of atelets and operator", "substrate-system")
    .option("--listen <host:port>", "where HTTP clients come in", "0.0.0.0:8080")
    .option("--domain <name>", "actors are <actor>.<namespace>.<domain>", "actors.localhost")
    .requiredOption("--tls-cert <file>", "this router's certificate towards atelets and operator")
    .requiredOption("--tls-key <file>", "its key")
    .requiredOption("--tls-ca <file>", "the authority of their certificates")
    .option("--metrics-listen <host:port>", "where /metrics, /healthz and /readyz are", "0.0.0.0:9090")
    .option("--log-level <level>", "error, warn, info or debug", "info")
    .option("--max-connections <n>", "client connections at once", count, 8_000)
    .option("--max-held <n>", "requests that may wait for actors at once", count, 1_000)
    .option("--max-held-per-actor <n>", "of them for one actor", count, 200)
    .option("--wake-timeout <seconds>", "for actors whose Template's wakeTimeout isn't known yet", seconds, 30_000)
    .option("--headers-timeout <seconds>", "until a running actor begins to answer, then 504", seconds, 300_000)
    .option("--connect-timeout <seconds>", "for a connection to a running actor", seconds, 5_000)
    .option("--reattach-patience <seconds>", "for a lost atelet, before the operator is asked", seconds, 5_000)
    .option("--refused-patience <seconds>", "for a program that accepts no connections, then 502", seconds, 3_000)
    .option("--shutdown-grace <seconds>", "for open requests after SIGTERM", seconds, 25_000)
    .addHelpText("after", "\nTimes are in seconds and may have a fraction.")
    .parse([...argv], { from: "user" })
    .opts<Flags>();
  const { maxConnections, maxHeld, maxHeldPerActor } = flags;
  return {
    kubeconfig: flags.kubeconfig,
    namespace: flags.namespace,
    listen: flags.listen,
    domain: flags.domain,
    tlsCert: flags.tlsCert,
    tlsKey: flags.tlsKey,
    tlsCa: flags.tlsCa,
    metricsListen: flags.metricsListen,
    logLevel: flags.logLevel,
    limits: {
      maxConnections,
      maxHeld,
      maxHeldPerActor,
      defaultWakeTimeoutMs: flags.wakeTimeout,
      headersTimeoutMs: flags.headersTimeout,
      connectTimeoutMs: flags.connectTimeout,
      reattachPatienceMs: flags.reattachPatience,
      refusedPatienceMs: flags.refusedPatience,
      shutdownGraceMs: flags.shutdownGrace,
    },
  };
}

function count(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError("It must be a whole number above 0.");
  return value;
}

/** Seconds as milliseconds. */
function seconds(text: string): number {
  const value = Number(text);
  if (!(value >= 0) || value > 86_400) throw new InvalidArgumentError("It must be a number of seconds, 0 to 86400.");
  return value * 1000;
}
