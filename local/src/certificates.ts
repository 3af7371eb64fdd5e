import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { CertificateAuthority, type KeyPair, type LeafRequest } from "@substrate/lib/certificates.ts";

const DAY_MS = 24 * 60 * 60_000;
const AUTHORITY_MS = 3650 * DAY_MS;
/** Leaves are made anew at each start. */
const LEAF_MS = 365 * DAY_MS;

/** Where a certificate and its key are, both PEM. */
export interface KeyPairFiles {
  cert: string;
  key: string;
}

/** An authority whose key pair lies in files and outlives the process. */
export class Authority {
  readonly files: KeyPairFiles;
  readonly #authority: CertificateAuthority;

  private constructor(files: KeyPairFiles, authority: CertificateAuthority) {
    this.files = files;
    this.#authority = authority;
  }

  /** The authority in `files`, made if it is not there or ends within a leaf's life. */
  static async open(name: string, files: KeyPairFiles): Promise<Authority> {
    if (existsSync(files.cert) && existsSync(files.key)) {
      const pair = { cert: readFileSync(files.cert, "utf8"), key: readFileSync(files.key, "utf8") };
      const found = await CertificateAuthority.load(pair);
      if (found.expiresMs > Date.now() + LEAF_MS) return new Authority(files, found);
    }
    const made = await CertificateAuthority.create(name, AUTHORITY_MS);
    write(made.pair, files);
    return new Authority(files, made);
  }

  certificatePem(): string {
    return this.#authority.pair.cert;
  }

  /** A new key and a certificate for server and client use, valid for a year, written to `files`. */
  async issue(request: LeafRequest, files: KeyPairFiles): Promise<KeyPairFiles> {
    write(await this.#authority.issue(request, LEAF_MS), files);
    return files;
  }
}

function write(pair: KeyPair, files: KeyPairFiles): void {
  writeFileSync(files.key, pair.key, { mode: 0o600 });
  writeFileSync(files.cert, pair.cert);
}
