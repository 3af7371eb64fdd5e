import { X509Certificate } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { CertificateAuthority, isSignedBy, type LeafRequest, renewalMs } from "@substrate/lib/certificates.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type TlsMaterial, TlsSource } from "@substrate/lib/rpc/tls.ts";
import { type ManagedCertificates } from "../config.ts";
import { type Authorities, bundleOf } from "./authorities.ts";
import { type CertificateSecrets } from "./secrets.ts";

const retryMs = 1_000;
const longestLookMs = 10_000;

/** How often an operator looks at the Secrets: several times within the time that a change has to spread. */
export function lookEveryMs({ certificateLifetimeMs }: ManagedCertificates): number {
  return Math.min(longestLookMs, certificateLifetimeMs / 30);
}

export interface OperatorIdentityOptions {
  secrets: CertificateSecrets;
  settings: ManagedCertificates;
  request: LeafRequest;
  log: Logger;
}

/** This operator's own certificate: signed by itself, renewed in memory, never written anywhere. */
export class OperatorIdentity {
  readonly #options: OperatorIdentityOptions;

  constructor(options: OperatorIdentityOptions) {
    this.#options = options;
  }

  /** Waits for the API server; follows the authorities until `signal` aborts. */
  async start(signal: AbortSignal): Promise<TlsSource> {
    const { log, secrets } = this.#options;
    for (;;) {
      try {
        const source = new TlsSource(await this.#issue(await secrets.authorities()));
        void this.#follow(source, signal);
        return source;
      } catch (error) {
        signal.throwIfAborted();
        log.warn("no certificate yet", { error });
      }
      await sleep(retryMs, undefined, { signal });
    }
  }

  async #follow(source: TlsSource, signal: AbortSignal): Promise<void> {
    const { log, secrets, settings } = this.#options;
    const stopped = (): boolean => signal.aborted;
    while (!stopped()) {
      await sleep(lookEveryMs(settings), undefined, { signal }).catch(() => undefined);
      if (stopped()) return;
      try {
        const authorities = await secrets.authorities();
        const { ca, cert } = source.current;
        const isCurrent =
          Date.now() < renewalMs(cert.toString()) && isSignedBy(new X509Certificate(cert), authorities.signer.cert);
        if (isCurrent && ca.toString() === bundleOf(authorities)) continue;
        source.renew(
          isCurrent ? { ...source.current, ca: Buffer.from(bundleOf(authorities)) } : await this.#issue(authorities),
        );
        log.info("certificate renewed", { expires: new Date(source.expiresMs).toISOString() });
      } catch (error) {
        if (!stopped()) log.warn("certificate not renewed", { error });
      }
    }
  }

  async #issue(authorities: Authorities): Promise<TlsMaterial> {
    const { request, settings } = this.#options;
    const signer = await CertificateAuthority.load(authorities.signer);
    const { cert, key } = await signer.issue(request, settings.certificateLifetimeMs);
    return { ca: Buffer.from(bundleOf(authorities)), cert: Buffer.from(cert), key: Buffer.from(key) };
  }
}
