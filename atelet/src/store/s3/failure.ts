import { S3ServiceException } from "@aws-sdk/client-s3";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type BucketSettings } from "../settings.ts";

/** The name of the answer (NoSuchKey, AccessDenied …) or of the local error; "" for what has none. */
export function nameOf(error: unknown): string {
  if (error instanceof S3ServiceException) return error.name;
  if (!(error instanceof Error)) return "";
  return "code" in error && typeof error.code === "string" ? error.code : error.name;
}

function statusOf(error: unknown): number | undefined {
  return error instanceof S3ServiceException ? error.$metadata.httpStatusCode : undefined;
}

/** Whether a condition of a write did not hold: 412, or 409 when another write of the same key came between. */
export function isConditionFailed(error: unknown): boolean {
  return statusOf(error) === 412 || nameOf(error) === "ConditionalRequestConflict";
}

/** Whether it is the object that isn't there, and not its bucket. */
export function isMissing(error: unknown): boolean {
  return nameOf(error) === "NoSuchKey" || nameOf(error) === "NotFound";
}

const refusedKeys = [
  "InvalidAccessKeyId",
  "SignatureDoesNotMatch",
  "ExpiredToken",
  "InvalidToken",
  "TokenRefreshRequired",
  "InvalidClientTokenId",
  "XAdminUserNotFound",
  "NoSuchUser",
];
const otherRegion = ["PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"];
const untrusted = [
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
];
const unreachable = [
  "ECONNREFUSED",
  "ECONNRESET",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EPIPE",
  "ETIMEDOUT",
  "TimeoutError",
  "AnswerTimeout",
  "AbortError",
];
const full = ["InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "EntityTooLarge", "NoSpaceLeft"];

const throttled = ["SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "TooManyRequestsException"];
const mangled = ["BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"];

export function isUntrusted(error: unknown): boolean {
  return untrusted.includes(nameOf(error));
}

/**
 * What went wrong with a bucket, in words of its store's settings. All may heal by a change outside of the atelet, so
 * all is STORE_UNAVAILABLE and tried again.
 *
 * @param what was being done, with the key.
 */
export function storeFailure(settings: BucketSettings, what: string, error: unknown): SubstrateError {
  if (error instanceof SubstrateError) return error;
  const message = `the store ${settings.name} (${settings.url}), ${what}: ${explain(settings, error)}`;
  return new SubstrateError("STORE_UNAVAILABLE", message, { cause: error });
}

function explain(settings: BucketSettings, error: unknown): string {
  const name = nameOf(error);
  const status = statusOf(error);
  const said = error instanceof Error && error.message !== "" && error.message !== name ? ` (${error.message})` : "";
  const server = settings.endpoint ?? `AWS in ${settings.region ?? "the region of AWS_REGION"}`;
  const keys =
    settings.credentialsDir === undefined ? "the workload's identity" : `the keys in ${settings.credentialsDir}`;
  if (name === "NoSuchBucket") {
    return `there is no bucket ${settings.bucket} at ${server}: create it, or correct the URL of the store`;
  }
  if (refusedKeys.includes(name)) {
    return `${server} refuses ${keys}: ${name}: put valid ones there, they are read again by themselves`;
  }
  if (otherRegion.includes(name) || status === 301) {
    return `the bucket is in another region than ${settings.region ?? "AWS_REGION says"}${said}: write region=… in the URL`;
  }
  if (full.includes(name) || status === 507 || /no space left/i.test(said)) {
    return `${server} has no space left: ${name}${said}: free or add space there`;
  }
  if (name === "RequestTimeTooSkewed") return `the clock of this node differs from the server's${said}: set it right`;
  if (status === 403) {
    return `${server} denies it to ${keys}: ${name}${said}: grant what docs/operations/stores.md lists`;
  }
  if (name === "CredentialsProviderError") {
    return "there are no credentials: name a folder with them in --store-credentials, or give the pod an identity";
  }
  if (error instanceof Error && error.message.startsWith("Region is missing")) {
    return "no region is known: write region=… in the URL of the store, or set AWS_REGION";
  }
  if (untrusted.includes(name)) {
    const file = settings.caPath === undefined ? "a file with its authority in --store-ca" : `it in ${settings.caPath}`;
    return `the certificate of ${server} is not trusted (${name}): name ${file}`;
  }
  if (name === "CERT_HAS_EXPIRED") return `the certificate of ${server} has expired: renew it there`;
  if (name === "ERR_TLS_CERT_ALTNAME_INVALID") {
    return `the certificate of ${server} is for another name${said}: correct endpoint=, or try pathStyle=true`;
  }
  if (name === "EPROTO" || name.startsWith("ERR_SSL")) {
    return `${server} speaks no TLS (${name}): write endpoint=http://…, or turn TLS on there`;
  }
  if (unreachable.includes(name)) return `${server} does not answer (${name}): mend it, or the way to it`;
  if (name === "TooSlow") return `the way to ${server} is too slow${said}: mend it`;
  if (name === "ShortBody" || name === "MalformedAnswer") {
    return `${server} answers in part or in disorder${said}: see whether something between changes what passes`;
  }
  if (throttled.includes(name) || status === 503) {
    return `${server} asks for fewer requests (${status ?? ""} ${name}), for longer than the tries last: raise its limits`;
  }
  if (mangled.includes(name)) {
    return `bytes are changed on their way to ${server} (${name}): see what is between, and use https`;
  }
  const number = status === undefined ? "" : ` ${status}`;
  return `${server} answered${number} ${name}${said}: see the server's log`;
}
