import { accessSync, constants } from "node:fs";
import { isIPv4 } from "node:net";
import { delimiter, isAbsolute, join } from "node:path";
import { parseArgs } from "node:util";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type DiskFloor, parseFloor } from "./disk/floor.ts";
import { type StoreSettings, storeSettings } from "./store/settings.ts";

/** Settings of the supervisor and of the atelet that it starts: both get the same arguments. */
export interface AteletConfig {
  /** Name of the Node object, and of this atelet's Lease. */
  nodeName: string;
  /** System namespace: where the Lease lives. */
  namespace: string;
  /** Undefined: the pod's ServiceAccount. */
  kubeconfigPath: string | undefined;
  /** The node folder: 0700, locked by the supervisor. */
  stateDir: string;
  /** The pod's IPv4 address, on which gRPC listens and actors' outer ports are opened. */
  advertiseAddress: string;
  port: number;
  metricsListen: { host: string; port: number };
  tls: { certPath: string; keyPath: string; caPath: string };
  tools: { runsc: string; crane: string; umoci: string };
  /** Snapshot stores by the name that Templates use. */
  stores: ReadonlyMap<string, StoreSettings>;
  /** Absolute: mirrors, pull secrets and authorities of registries; undefined: crane's own settings. */
  registryConfigPath: string | undefined;
  /** Below which cgroup the actors' groups are made, relative to each controller's root; "/" is the pod's own. */
  cgroupParent: string;
  /** How many sandboxes may wait for an actor at once; 0: none. */
  warmSlots: number;
  /** Part of the pod's memory that is neither booked nor lent: the atelet's own and its children's. */
  reserveBytes: number;
  /** R5: of the node's memory, what is lent to snapshots at most, if the pod has no memory limit. */
  lendPercent: number;
  /** R24: how much of the node folder's disk is kept free. */
  diskFloor: DiskFloor;
  /** What snapshots on this node may take; undefined: as much as the disk has. */
  snapshotQuotaBytes: number | undefined;
  /** Whether Templates may name images as oci:/abs/dir@sha256:… on this node. */
  allowLocalImages: boolean;
  /** Ranges that actors may not reach, besides the private, shared and link-local ones. */
  denyCidrs: readonly string[];
  /** How long SIGTERM may take to suspend and upload before everything is killed. */
  graceMs: number;
  /** Whether what actors' programs print also goes to this process's standard output, for the cluster's log collector. */
  actorLogs: "none" | "stdout";
  logLevel: string;
}

const logLevels = ["error", "warn", "info", "debug"];

const options = {
  "node-name": { type: "string" },
  namespace: { type: "string", default: "substrate-system" },
  kubeconfig: { type: "string" },
  "state-dir": { type: "string" },
  "advertise-address": { type: "string" },
  port: { type: "string", default: "7443" },
  "metrics-listen": { type: "string", default: "127.0.0.1:9464" },
  "tls-cert": { type: "string" },
  "tls-key": { type: "string" },
  "tls-ca": { type: "string" },
  runsc: { type: "string", default: "runsc" },
  crane: { type: "string", default: "crane" },
  umoci: { type: "string", default: "umoci" },
  store: { type: "string", multiple: true },
  "store-credentials": { type: "string", multiple: true, default: [] as string[] },
  "store-ca": { type: "string", multiple: true, default: [] as string[] },
  "registry-config": { type: "string" },
  "cgroup-parent": { type: "string", default: "/" },
  "reserve-bytes": { type: "string", default: String(512 * 1024 * 1024) },
  "lend-percent": { type: "string", default: "25" },
  "warm-slots": { type: "string", default: "4" },
  "disk-floor": { type: "string", default: "auto" },
  "snapshot-quota-bytes": { type: "string", default: "none" },
  "allow-local-images": { type: "boolean", default: false },
  "deny-cidr": { type: "string", multiple: true, default: [] as string[] },
  "grace-ms": { type: "string", default: "30000" },
  "actor-logs": { type: "string", default: "none" },
  "log-level": { type: "string", default: "info" },
} as const;

/** A flag that is missing or wrong; the message names it and says what is expected. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

function fail(flag: string, expected: string, got?: string): never {
  throw new ConfigError(`--${flag}: ${expected}${got === undefined ? ", and it is missing" : `, not "${got}"`}`);
}

function required(flag: string, value: string | undefined, expected: string): string {
  return value === undefined || value === "" ? fail(flag, `expects ${expected}`) : value;
}

function absolute(flag: string, value: string | undefined): string {
  const path = required(flag, value, "an absolute path");
  return isAbsolute(path) ? path : fail(flag, "expects an absolute path", path);
}

function whole(flag: string, value: string, min: number, max: number): number {
  const n = /^\d+$/.test(value) ? Number(value) : NaN;
  return n >= min && n <= max ? n : fail(flag, `expects a whole number from ${min} to ${max}`, value);
}

function ipv4(flag: string, value: string | undefined): string {
  const address = required(flag, value, "an IPv4 address");
  return isIPv4(address) ? address : fail(flag, "expects an IPv4 address", address);
}

function listen(flag: string, value: string): { host: string; port: number } {
  const match = /^(.+):(\d{1,5})$/.exec(value);
  if (match?.[1] === undefined || match[2] === undefined) return fail(flag, "expects HOST:PORT", value);
  return { host: match[1].replace(/^\[(.*)\]$/, "$1"), port: whole(flag, match[2], 0, 65_535) };
}

function cidr(flag: string, value: string): string {
  const [address, prefix, rest] = value.split("/");
  const ok = rest === undefined && isIPv4(address ?? "") && /^\d{1,2}$/.test(prefix ?? "") && Number(prefix) <= 32;
  return ok ? value : fail(flag, "expects an IPv4 range such as 203.0.113.0/24", value);
}

function executable(flag: string, value: string, path: string | undefined): string {
  if (isAbsolute(value)) return value;
  const found = (path ?? "")
    .split(delimiter)
    .filter((dir) => isAbsolute(dir))
    .map((dir) => join(dir, value))
    .find((file) => isExecutable(file));
  return found ?? fail(flag, "expects an absolute path or the name of a program on PATH", value);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error) return false;
    throw error;
  }
}

/** What is said about stores: NAME=VALUE, each name once. */
function byStore(flag: string, values: readonly string[], expected: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const value of values) {
    const at = value.indexOf("=");
    const name = value.slice(0, at);
    if (at < 0 || !/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(name)) {
      fail(flag, `expects ${expected} with a lower-case name`, value);
    }
    if (found.has(name)) fail(flag, "expects each name once", value);
    found.set(name, value.slice(at + 1));
  }
  return found;
}

function storesOf(
  urls: readonly string[],
  credentials: readonly string[],
  authorities: readonly string[],
): Map<string, StoreSettings> {
  const stores = byStore("store", urls, "NAME=URL");
  const folders = byStore("store-credentials", credentials, "NAME=FOLDER");
  const files = byStore("store-ca", authorities, "NAME=FILE");
  for (const [flag, values] of [
    ["store-credentials", folders],
    ["store-ca", files],
  ] as const) {
    for (const [name, path] of values) {
      if (!stores.has(name)) fail(flag, `expects the name of a --store (${[...stores.keys()].join(", ")})`, name);
      absolute(flag, path);
    }
  }
  return new Map(
    [...stores].map(([name, url]) => {
      try {
        return [name, storeSettings(name, url, { credentialsDir: folders.get(name), caPath: files.get(name) })];
      } catch (error) {
        if (!(error instanceof SubstrateError)) throw error;
        throw new ConfigError(`--store: ${error.message}`, { cause: error });
      }
    }),
  );
}

function floorOf(value: string): DiskFloor {
  try {
    return parseFloor(value);
  } catch (error) {
    if (!(error instanceof SubstrateError)) throw error;
    return fail("disk-floor", error.message, value);
  }
}

function quotaOf(value: string): number | undefined {
  if (value === "none") return undefined;
  const bytes = /^\d{1,15}$/.test(value) ? Number(value) : 0;
  return bytes > 0 ? bytes : fail("snapshot-quota-bytes", "expects none or a number of bytes", value);
}

function actorLogsOf(value: string): AteletConfig["actorLogs"] {
  return value === "none" || value === "stdout" ? value : fail("actor-logs", "expects none or stdout", value);
}

/**
 * Reads the flags of `argv` (without node and script). The environment gives only PATH, on which tools are looked for.
 * Throws ConfigError.
 */
export function parseConfig(argv: readonly string[], env: Record<string, string | undefined>): AteletConfig {
  let flags;
  try {
    flags = parseArgs({ args: [...argv], options, allowPositionals: false }).values;
  } catch (error) {
    throw new ConfigError(error instanceof Error ? error.message : String(error), { cause: error });
  }
  const level = flags["log-level"];
  return {
    nodeName: required("node-name", flags["node-name"], "the name of this Node object"),
    namespace: required("namespace", flags.namespace, "the system namespace"),
    kubeconfigPath: flags.kubeconfig === undefined ? undefined : absolute("kubeconfig", flags.kubeconfig),
    stateDir: absolute("state-dir", flags["state-dir"]),
    advertiseAddress: ipv4("advertise-address", flags["advertise-address"]),
    port: whole("port", flags.port, 1, 65_535),
    metricsListen: listen("metrics-listen", flags["metrics-listen"]),
    tls: {
      certPath: absolute("tls-cert", flags["tls-cert"]),
      keyPath: absolute("tls-key", flags["tls-key"]),
      caPath: absolute("tls-ca", flags["tls-ca"]),
    },
    tools: {
      runsc: executable("runsc", flags.runsc, env.PATH),
      crane: executable("crane", flags.crane, env.PATH),
      umoci: executable("umoci", flags.umoci, env.PATH),
    },
    stores: storesOf(
      flags.store ?? fail("store", "expects at least one NAME=URL"),
      flags["store-credentials"],
      flags["store-ca"],
    ),
    registryConfigPath:
      flags["registry-config"] === undefined ? undefined : absolute("registry-config", flags["registry-config"]),
    cgroupParent: absolute("cgroup-parent", flags["cgroup-parent"]),
    reserveBytes: whole("reserve-bytes", flags["reserve-bytes"], 0, Number.MAX_SAFE_INTEGER),
    lendPercent: whole("lend-percent", flags["lend-percent"], 0, 100),
    warmSlots: whole("warm-slots", flags["warm-slots"], 0, 64),
    diskFloor: floorOf(flags["disk-floor"]),
    snapshotQuotaBytes: quotaOf(flags["snapshot-quota-bytes"]),
    allowLocalImages: flags["allow-local-images"],
    denyCidrs: flags["deny-cidr"].map((value) => cidr("deny-cidr", value)),
    graceMs: whole("grace-ms", flags["grace-ms"], 0, 3_600_000),
    actorLogs: actorLogsOf(flags["actor-logs"]),
    logLevel: logLevels.includes(level) ? level : fail("log-level", `expects one of ${logLevels.join(", ")}`, level),
  };
}

/** The settings of this process. If they are wrong it says so on stderr and ends with code 2. */
export function readConfig(): AteletConfig {
  try {
    return parseConfig(process.argv.slice(2), process.env);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`atelet: ${error.message}\n`);
    process.exit(2);
  }
}
