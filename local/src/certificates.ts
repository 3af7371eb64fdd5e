import "reflect-metadata";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { webcrypto } from "node:crypto";
import * as x509 from "@peculiar/x509";

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;
const DAY_MS = 24 * 60 * 60_000;
/** Clocks that were set back a little must not make a fresh certificate invalid. */
const BACKDATE_MS = 5 * 60_000;
const AUTHORITY_DAYS = 3650;
/** Leaves are made anew at each start. */
const LEAF_DAYS = 365;

/** Where a certificate and its key are, both PEM. */
export interface KeyPairFiles {
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

function serialNumber(): string {
  const bytes = webcrypto.getRandomValues(new Uint8Array(16));
  // the first bit must be 0 (a positive integer) and the first octet not 0 (no padding)
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return Buffer.from(bytes).toString("hex");
}

function validity(days: number): { notBefore: Date; notAfter: Date } {
  const now = Date.now();
  return { notBefore: new Date(now - BACKDATE_MS), notAfter: new Date(now + days * DAY_MS) };
}

/** Signs certificates for one kind of peer; its own key pair lies in files and outlives the process. */
export class Authority {
  readonly files: KeyPairFiles;
  readonly #certificate: x509.X509Certificate;
  readonly #key: webcrypto.CryptoKey;

  private constructor(files: KeyPairFiles, certificate: x509.X509Certificate, key: webcrypto.CryptoKey) {
    this.files = files;
    this.#certificate = certificate;
    this.#key = key;
  }

  /** The authority in `files`, made if it is not there or ends within a leaf's life. */
  static async open(name: string, files: KeyPairFiles): Promise<Authority> {
    if (existsSync(files.cert) && existsSync(files.key)) {
      const certificate = new x509.X509Certificate(readFileSync(files.cert, "utf8"));
      if (certificate.notAfter.getTime() > Date.now() + LEAF_DAYS * DAY_MS) {
        const der = x509.PemConverter.decodeFirst(readFileSync(files.key, "utf8"));
        const key = await webcrypto.subtle.importKey("pkcs8", der, ALGORITHM, false, ["sign"]);
        return new Authority(files, certificate, key);
      }
    }
    const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
    const certificate = await x509.X509CertificateGenerator.createSelfSigned(
      {
        serialNumber: serialNumber(),
        name: `CN=${name}`,
        ...validity(AUTHORITY_DAYS),
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
    writeFileSync(files.key, pemOfKey(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey)), { mode: 0o600 });
    writeFileSync(files.cert, `${certificate.toString("pem")}\n`);
    return new Authority(files, certificate, keys.privateKey);
  }

  certificatePem(): string {
    return `${this.#certificate.toString("pem")}\n`;
  }

  /** A new key and a certificate for server and client use, valid for a year, written to `files`. */
  async issue(request: LeafRequest, files: KeyPairFiles): Promise<KeyPairFiles> {
    const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
    const names: x509.JsonGeneralNames = [
      ...(request.dnsNames ?? []).map((value) => ({ type: "dns" as const, value })),
      ...(request.ipAddresses ?? []).map((value) => ({ type: "ip" as const, value })),
    ];
    const certificate = await x509.X509CertificateGenerator.create(
      {
        serialNumber: serialNumber(),
        subject: request.subject,
        issuer: this.#certificate.subject,
        ...validity(LEAF_DAYS),
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
    writeFileSync(files.key, pemOfKey(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey)), { mode: 0o600 });
    writeFileSync(files.cert, `${certificate.toString("pem")}\n`);
    return files;
  }
}
