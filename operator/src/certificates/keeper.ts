import { X509Certificate } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { CertificateAuthority, isSignedBy, renewalMs } from "@substrate/lib/certificates.ts";
import { isConflict } from "@substrate/lib/kube/client.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type ManagedCertificates } from "../config.ts";
import { type Authorities, bundleOf } from "./authorities.ts";
import { lookEveryMs } from "./identity.ts";
import { leafRequest, type ManagedPart } from "./names.ts";
import { type CertificateSecrets } from "./secrets.ts";

const parts: readonly ManagedPart[] = ["atelet", "router"];

export interface CertificateKeeperOptions {
  secrets: CertificateSecrets;
  settings: ManagedCertificates;
  namespace: string;
  log: Logger;
}

/** The leader's work: authorities that follow each other, and the certificates of the other parts. */
export class CertificateKeeper {
  readonly #options: CertificateKeeperOptions;

  constructor(options: CertificateKeeperOptions) {
    this.#options = options;
  }

  /** Until `signal` aborts; never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { log, settings } = this.#options;
    const stopped = (): boolean => signal.aborted;
    while (!stopped()) {
      try {
        await this.#look(stopped);
      } catch (error) {
        const level = isConflict(error) ? "debug" : "warn";
        if (!stopped()) log.log(level, "certificates were not looked after; tried again soon", { error });
      }
      await sleep(lookEveryMs(settings), undefined, { signal }).catch(() => undefined);
    }
  }

  async #look(stopped: () => boolean): Promise<void> {
    const { log, secrets } = this.#options;
    const { authorities, hasChanged } = await secrets.advance();
    if (hasChanged) {
      const { next, previous } = authorities;
      log.info("authorities of the parts' certificates have changed", {
        nextSignsAt: next && new Date(next.signsAtMs).toISOString(),
        previousUntil: previous && new Date(previous.untilMs).toISOString(),
      });
    }
    for (const part of parts) if (!stopped()) await this.#keep(part, authorities);
  }

  async #keep(part: ManagedPart, authorities: Authorities): Promise<void> {
    const { log, namespace, secrets, settings } = this.#options;
    const ca = bundleOf(authorities);
    const found = await secrets.read(part);
    const isCurrent =
      found !== undefined &&
      Date.now() < renewalMs(found.cert) &&
      isSignedBy(new X509Certificate(found.cert), authorities.signer.cert);
    if (isCurrent && found.ca === ca && (await secrets.isOwned(found.secret))) return;
    if (isCurrent) {
      await secrets.write(part, found.secret, { ...found, ca });
      return;
    }
    const signer = await CertificateAuthority.load(authorities.signer);
    const pair = await signer.issue(leafRequest(part, namespace), settings.certificateLifetimeMs);
    await secrets.write(part, found?.secret, { ...pair, ca });
    log.info("certificate made", { part, expires: new X509Certificate(pair.cert).validToDate.toISOString() });
  }
}
