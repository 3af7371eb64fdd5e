import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { type ChannelCredentials, experimental, type ServerCredentials } from "@grpc/grpc-js";
import { type Logger } from "../log.ts";

/** PEM files of a part: its own certificate and key, and the authority whose certificates it accepts from peers. */
export interface TlsFiles {
  caFile: string;
  certFile: string;
  keyFile: string;
}

export interface TlsMaterial {
  /** One or several authorities. */
  ca: Buffer;
  cert: Buffer;
  key: Buffer;
}

/** How soon files that have changed are used. */
const rereadEveryMs = 1_000;

/** Reads the three files; the error names the file that cannot be read. */
export function loadTls(files: TlsFiles): TlsMaterial {
  const read = (path: string, what: string): Buffer => {
    try {
      return readFileSync(path);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new Error(`${what} ${path} cannot be read: ${reason}`, { cause: error });
    }
  };
  return {
    ca: read(files.caFile, "CA file"),
    cert: read(files.certFile, "certificate file"),
    key: read(files.keyFile, "key file"),
  };
}

type Listener = (material: TlsMaterial) => void;

/**
 * A part's certificate as it is now. Servers and clients made from it use a renewed one for every connection that
 * begins after the renewal; connections that are open stay.
 */
export class TlsSource implements experimental.CertificateProvider {
  readonly #listeners = new Set<Listener>();
  readonly #authorityListeners = new Set<experimental.CaCertificateUpdateListener>();
  readonly #identityListeners = new Set<experimental.IdentityCertificateUpdateListener>();
  #current: TlsMaterial;
  #expiresMs: number;

  constructor(material: TlsMaterial) {
    this.#expiresMs = check(material);
    this.#current = material;
  }

  get current(): TlsMaterial {
    return this.#current;
  }

  /** When this part's own certificate ends, Unix time. */
  get expiresMs(): number {
    return this.#expiresMs;
  }

  /** Throws when certificate and key don't belong together, as while files are being replaced. */
  renew(material: TlsMaterial): void {
    this.#expiresMs = check(material);
    this.#current = material;
    for (const listener of this.#authorityListeners) listener({ caCertificate: material.ca });
    for (const listener of this.#identityListeners) listener(identity(material));
    for (const listener of this.#listeners) listener(material);
  }

  /** Calls `listener` at every renewal from now on; returns how to stop that. */
  onRenewal(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  addCaCertificateListener(listener: experimental.CaCertificateUpdateListener): void {
    this.#authorityListeners.add(listener);
    soon(listener, { caCertificate: this.#current.ca });
  }

  removeCaCertificateListener(listener: experimental.CaCertificateUpdateListener): void {
    this.#authorityListeners.delete(listener);
  }

  addIdentityCertificateListener(listener: experimental.IdentityCertificateUpdateListener): void {
    this.#identityListeners.add(listener);
    soon(listener, identity(this.#current));
  }

  removeIdentityCertificateListener(listener: experimental.IdentityCertificateUpdateListener): void {
    this.#identityListeners.delete(listener);
  }
}

/** grpc-js is deaf while it adds a listener. */
function soon<Update>(listener: (update: Update) => void, update: Update): void {
  process.nextTick(listener, update);
}

function identity({ cert, key }: TlsMaterial): experimental.IdentityCertificateUpdate {
  return { certificate: cert, privateKey: key };
}

/** @returns when the certificate ends. */
function check({ cert, key }: TlsMaterial): number {
  const certificate = new X509Certificate(cert);
  if (!certificate.checkPrivateKey(createPrivateKey(key))) throw new Error("the key is not the certificate's");
  return certificate.validToDate.getTime();
}

/**
 * A source that follows its files until `signal` aborts. Throws when they cannot be used now; later the last ones that
 * could be used stay, and the log says why.
 */
export function followTlsFiles(files: TlsFiles, log: Logger, signal: AbortSignal): TlsSource {
  const source = new TlsSource(loadTls(files));
  let problem: string | undefined;
  const timer = setInterval(() => {
    try {
      const material = loadTls(files);
      if (!isSame(material, source.current)) {
        source.renew(material);
        log.info("certificate renewed", { file: files.certFile, expires: new Date(source.expiresMs).toISOString() });
      }
      problem = undefined;
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (reason !== problem) log.warn("certificate not renewed", { file: files.certFile, error });
      problem = reason;
    }
  }, rereadEveryMs);
  timer.unref();
  signal.addEventListener("abort", () => {
    clearInterval(timer);
  });
  return source;
}

function isSame(one: TlsMaterial, other: TlsMaterial): boolean {
  return one.ca.equals(other.ca) && one.cert.equals(other.cert) && one.key.equals(other.key);
}

/** Mutual TLS: a client without a certificate of our authority is refused. */
export function serverCredentials(tls: TlsSource): ServerCredentials {
  return experimental.createCertificateProviderServerCredentials(tls, tls, true);
}

export function clientCredentials(tls: TlsSource): ChannelCredentials {
  return experimental.createCertificateProviderChannelCredentials(tls, tls);
}
