import { CertificateAuthority, type KeyPair, renewalMs } from "@substrate/lib/certificates.ts";
import { type Secret } from "@substrate/lib/kube/types.ts";
import { type ManagedCertificates } from "../config.ts";

/**
 * The authorities of the parts' certificates. A new one is trusted everywhere before it signs, and the one before is
 * trusted until all that it has signed has ended, so that at no moment a part meets a certificate it doesn't trust.
 */
export interface Authorities {
  signer: KeyPair;
  /** Trusted already, and signs from `signsAtMs` on. */
  next?: KeyPair & { signsAtMs: number };
  /** Signs no more; trusted until `untilMs`. */
  previous?: { cert: string; untilMs: number };
}

/** A person asks for a new authority by this annotation of the Secret, whatever its value. */
export const requestAnnotation = "substrate.run/new-authority";
const signsAtAnnotation = "substrate.run/next-signs-at";
const untilAnnotation = "substrate.run/previous-until";

/** Kubelets bring a changed Secret into their pods within about two minutes. */
const longestSpreadMs = 60 * 60_000;

/** How long a change has to reach everybody before anything depends on it. */
function spreadMs({ certificateLifetimeMs }: ManagedCertificates): number {
  return Math.min(longestSpreadMs, certificateLifetimeMs / 3);
}

/** All that are trusted now, PEM. */
export function bundleOf({ next, previous, signer }: Authorities): string {
  return [signer.cert, next?.cert ?? "", previous?.cert ?? ""].join("");
}

async function newAuthority({ authorityLifetimeMs }: ManagedCertificates): Promise<KeyPair> {
  return (await CertificateAuthority.create(`substrate ${new Date().toISOString()}`, authorityLifetimeMs)).pair;
}

export async function firstAuthorities(settings: ManagedCertificates): Promise<Authorities> {
  return { signer: await newAuthority(settings) };
}

/** What is to follow; the same object when nothing is due. One change at a time. */
export async function advance(
  now: Authorities,
  settings: ManagedCertificates,
  requested: boolean,
  nowMs: number,
): Promise<Authorities> {
  const { next, previous, signer } = now;
  if (previous !== undefined) {
    return nowMs < previous.untilMs ? now : { signer, ...(next === undefined ? {} : { next }) };
  }
  if (next !== undefined) {
    if (nowMs < next.signsAtMs) return now;
    // another operator may sign by the old one until it has heard of this
    const untilMs = nowMs + settings.certificateLifetimeMs + spreadMs(settings);
    return { signer: { cert: next.cert, key: next.key }, previous: { cert: signer.cert, untilMs } };
  }
  if (!requested && nowMs < renewalMs(signer.cert)) return now;
  return { signer, next: { ...(await newAuthority(settings)), signsAtMs: nowMs + spreadMs(settings) } };
}

/** Throws naming the Secret when it isn't one of ours. */
export function parseAuthorities({ data = {}, metadata }: Secret): Authorities {
  const value = (key: string): string | undefined => {
    const encoded = data[key];
    return encoded === undefined ? undefined : Buffer.from(encoded, "base64").toString();
  };
  const time = (annotation: string): number => Date.parse(metadata.annotations?.[annotation] ?? "");
  const [cert, key, nextCert, nextKey] = ["tls.crt", "tls.key", "next.crt", "next.key"].map(value);
  const previousCert = value("previous.crt");
  const signsAtMs = time(signsAtAnnotation);
  const untilMs = time(untilAnnotation);
  if (cert === undefined || key === undefined) {
    const what = `Secret ${metadata.namespace ?? ""}/${metadata.name} has no tls.crt and tls.key`;
    throw new Error(`${what}: delete it, and the operator makes a new authority`);
  }
  return {
    signer: { cert, key },
    ...(nextCert === undefined || nextKey === undefined
      ? {}
      : { next: { cert: nextCert, key: nextKey, signsAtMs: Number.isNaN(signsAtMs) ? 0 : signsAtMs } }),
    ...(previousCert === undefined
      ? {}
      : { previous: { cert: previousCert, untilMs: Number.isNaN(untilMs) ? 0 : untilMs } }),
  };
}

/** `data` and annotations of the Secret; an annotation of a person's request is gone from it. */
export function formatAuthorities(authorities: Authorities): {
  data: Record<string, string>;
  annotations: Record<string, string>;
} {
  const { next, previous, signer } = authorities;
  const data: Record<string, string> = {
    "tls.crt": signer.cert,
    "tls.key": signer.key,
    "ca.crt": bundleOf(authorities),
    ...(next === undefined ? {} : { "next.crt": next.cert, "next.key": next.key }),
    ...(previous === undefined ? {} : { "previous.crt": previous.cert }),
  };
  return {
    data: encode(data),
    annotations: {
      ...(next === undefined ? {} : { [signsAtAnnotation]: new Date(next.signsAtMs).toISOString() }),
      ...(previous === undefined ? {} : { [untilAnnotation]: new Date(previous.untilMs).toISOString() }),
    },
  };
}

/** Values as a Secret's `data` has them. */
export function encode(values: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).map(([key, text]) => [key, Buffer.from(text).toString("base64")]));
}
