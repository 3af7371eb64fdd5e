import "reflect-metadata";
import { X509Certificate, webcrypto } from "node:crypto";
import * as x509 from "@peculiar/x509";

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;
/** Clocks that were set back a little must not make a fresh certificate invalid. */
const BACKDATE_MS = 5 * 60_000;

/** A certificate and its key, both PEM. */
export interface KeyPair {
  cert: string;
  key: string;
}

export interface LeafRequest {
  /** RFC 4514, for instance `CN=admin,O=system:masters`. */
  subject: string;
  dnsNames?: readonly string[];
  ipAddresses?: readonly string[];
}

function pemOfKey(der: ArrayBuffer): string {
  return x509.PemConverter.encode(der, "PRIVATE KEY");
}

function pemOf(certificate: x509.X509Certificate): string {
  return `${certificate.toString("pem")}\n`;
}

function serialNumber(): string {
  const bytes = webcrypto.getRandomValues(new Uint8Array(16));
  // the first bit must be 0 (a positive integer) and the first octet not 0 (no padding)
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return Buffer.from(bytes).toString("hex");
}

/** Signs certificates for one kind of peer. */
export class CertificateAuthority {
  readonly pair: KeyPair;
  readonly #certificate: x509.X509Certificate;
  readonly #key: webcrypto.CryptoKey;

  private constructor(pair: KeyPair, certificate: x509.X509Certificate, key: webcrypto.CryptoKey) {
    this.pair = pair;
    this.#certificate = certificate;
    this.#key = key;
  }

  /** A new one; authorities that are trusted together need different names. */
  static async create(name: string, lifetimeMs: number): Promise<CertificateAuthority> {
    const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
    const now = Date.now();
    const certificate = await x509.X509CertificateGenerator.createSelfSigned(
      {
        serialNumber: serialNumber(),
        name: `CN=${name}`,
        notBefore: new Date(now - BACKDATE_MS),
        notAfter: new Date(now + lifetimeMs),
        signingAlgorithm: ALGORITHM,
        keys,
        extensions: [
          new x509.BasicConstraintsExtension(true, 0, true),
          new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
          await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
        ],
      },
      webcrypto,
    );
    const key = pemOfKey(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey));
    return new CertificateAuthority({ cert: pemOf(certificate), key }, certificate, keys.privateKey);
  }

  /** Throws when certificate or key cannot be read. */
  static async load(pair: KeyPair): Promise<CertificateAuthority> {
    const der = x509.PemConverter.decodeFirst(pair.key);
    const key = await webcrypto.subtle.importKey("pkcs8", der, ALGORITHM, false, ["sign"]);
    return new CertificateAuthority(pair, new x509.X509Certificate(pair.cert), key);
  }

  /** Unix time. */
  get expiresMs(): number {
    return this.#certificate.notAfter.getTime();
  }

  /** A new key and a certificate for server and client use; it ends with the authority at the latest. */
  async issue(request: LeafRequest, lifetimeMs: number): Promise<KeyPair> {
    const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
    const names: x509.JsonGeneralNames = [
      ...(request.dnsNames ?? []).map((value) => ({ type: "dns" as const, value })),
      ...(request.ipAddresses ?? []).map((value) => ({ type: "ip" as const, value })),
    ];
    const now = Date.now();
    const certificate = await x509.X509CertificateGenerator.create(
      {
        serialNumber: serialNumber(),
        subject: request.subject,
        issuer: this.#certificate.subject,
        notBefore: new Date(now - BACKDATE_MS),
        notAfter: new Date(Math.min(now + lifetimeMs, this.expiresMs)),
        signingAlgorithm: ALGORITHM,
        publicKey: keys.publicKey,
        signingKey: this.#key,
        extensions: [
          new x509.BasicConstraintsExtension(false, undefined, true),
          new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
          new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth, x509.ExtendedKeyUsage.clientAuth]),
          await x509.AuthorityKeyIdentifierExtension.create(this.#certificate.publicKey),
          ...(names.length === 0 ? [] : [new x509.SubjectAlternativeNameExtension(names)]),
        ],
      },
      webcrypto,
    );
    return { cert: pemOf(certificate), key: pemOfKey(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey)) };
  }
}

/** When a certificate that this module made is to be replaced: at two thirds of its life. Unix time. */
export function renewalMs(certPem: string): number {
  const { validFromDate, validToDate } = new X509Certificate(certPem);
  const madeMs = validFromDate.getTime() + BACKDATE_MS;
  return madeMs + ((validToDate.getTime() - madeMs) * 2) / 3;
}

/** Certificates of a PEM bundle. */
export function certificatesIn(pem: string): X509Certificate[] {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return blocks.map((block) => new X509Certificate(block));
}

/** Whether one of the bundle's authorities has signed this certificate itself. */
export function isSignedBy(certificate: X509Certificate, authorities: string): boolean {
  return certificatesIn(authorities).some(
    (authority) => certificate.checkIssued(authority) && certificate.verify(authority.publicKey),
  );
}
