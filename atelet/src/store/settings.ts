import { fileURLToPath } from "node:url";
import { SubstrateError } from "@substrate/lib/errors.ts";

/** A folder of the machine, or one that is mounted. */
export interface FolderSettings {
  kind: "folder";
  /** By which Templates name the store. */
  name: string;
  url: string;
  /** Absolute, without a slash at the end. */
  path: string;
}

/** A bucket of a server that speaks S3, or a part of one. */
export interface BucketSettings {
  kind: "bucket";
  name: string;
  url: string;
  bucket: string;
  /** Before every key: "" or with a slash at the end. */
  prefix: string;
  /** http(s)://host[:port]; undefined: AWS itself. */
  endpoint: string | undefined;
  /** undefined: the environment's AWS_REGION. */
  region: string | undefined;
  /** Whether the bucket's name stands in the path and not in the host name. */
  pathStyle: boolean;
  /** Absolute: a folder with accessKeyId, secretAccessKey and perhaps sessionToken; undefined: the SDK's own chain. */
  credentialsDir: string | undefined;
  /** Absolute: PEM of the only authorities that are believed; undefined: the public ones. */
  caPath: string | undefined;
}

export type StoreSettings = FolderSettings | BucketSettings;

const bucketPattern = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
const prefixPattern = /^[A-Za-z0-9_-][A-Za-z0-9._-]*(\/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$/;
const parameters = ["endpoint", "region", "pathStyle"];

const forms = "file:///absolute/folder or s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION&pathStyle=true]";

/**
 * Reads one store of the installer's configuration. Throws INVALID, saying what is expected.
 *
 * @param files absolute paths; only for buckets.
 */
export function storeSettings(
  name: string,
  url: string,
  files: { credentialsDir?: string | undefined; caPath?: string | undefined } = {},
): StoreSettings {
  const parsed = URL.parse(url);
  if (parsed?.protocol === "s3:") return bucketSettings(name, parsed, files);
  if (!url.startsWith("file:///") || parsed === null || parsed.pathname === "/") throw wrong(name, url, `use ${forms}`);
  for (const [flag, value] of [
    ["--store-credentials", files.credentialsDir],
    ["--store-ca", files.caPath],
  ] as const) {
    if (value !== undefined) throw wrong(name, url, `a folder takes no ${flag}: remove it`);
  }
  return { kind: "folder", name, url, path: fileURLToPath(parsed).replace(/\/+$/, "") };
}

function bucketSettings(
  name: string,
  url: URL,
  files: { credentialsDir?: string | undefined; caPath?: string | undefined },
): BucketSettings {
  // what somebody took for credentials is in no message
  const shown = url.href.replace(/\/\/[^/?#]*@/, "//…@");
  const refuse = (fix: string): SubstrateError => wrong(name, shown, fix);
  if (url.username !== "" || url.password !== "") {
    throw refuse("put the credentials into files of a folder and name it in --store-credentials");
  }
  if (!bucketPattern.test(url.hostname) || url.port !== "" || url.hash !== "") {
    throw refuse("after s3:// comes the name of a bucket: lower-case letters, digits, dots and dashes");
  }
  const prefix = url.pathname.replace(/^\/|\/$/g, "");
  if (prefix !== "" && !prefixPattern.test(prefix)) {
    throw refuse('a prefix has letters, digits, ".", "_", "-" and single slashes');
  }
  for (const key of url.searchParams.keys()) {
    if (!parameters.includes(key)) throw refuse(`there is no parameter ${key}: use ${parameters.join(", ")}`);
    if (url.searchParams.getAll(key).length > 1) throw refuse(`${key} is there twice`);
  }
  const endpoint = url.searchParams.get("endpoint") ?? undefined;
  if (endpoint !== undefined && !isEndpoint(endpoint))
    throw refuse("write endpoint=https://HOST[:PORT], nothing after it");
  const pathStyle = url.searchParams.get("pathStyle") ?? String(endpoint !== undefined);
  if (!["true", "false"].includes(pathStyle)) throw refuse("write pathStyle=true or pathStyle=false");
  const region = url.searchParams.get("region") ?? (endpoint === undefined ? undefined : "us-east-1");
  if (region !== undefined && !/^[a-z0-9-]+$/.test(region)) throw refuse("write region=NAME, as eu-central-1");
  return {
    kind: "bucket",
    name,
    url: shown,
    bucket: url.hostname,
    prefix: prefix === "" ? "" : `${prefix}/`,
    endpoint: endpoint?.replace(/\/$/, ""),
    region,
    pathStyle: pathStyle === "true",
    credentialsDir: files.credentialsDir,
    caPath: files.caPath,
  };
}

function isEndpoint(value: string): boolean {
  const url = URL.parse(value);
  return url !== null && /^https?:\/\//.test(value) && url.origin === value.replace(/\/$/, "").toLowerCase();
}

function wrong(name: string, url: string, fix: string): SubstrateError {
  return new SubstrateError("INVALID", `the store ${name} has the URL "${url}": ${fix}`);
}
