import { readFileSync } from "node:fs";
import { type ChannelCredentials, credentials, ServerCredentials } from "@grpc/grpc-js";

/** PEM files of a part: its own certificate and key, and the authority whose certificates it accepts from peers. */
export interface TlsFiles {
  caFile: string;
  certFile: string;
  keyFile: string;
}

export interface TlsMaterial {
  ca: Buffer;
  cert: Buffer;
  key: Buffer;
}

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

/** Mutual TLS: a client without a certificate of our authority is refused. */
export function serverCredentials(tls: TlsMaterial): ServerCredentials {
  return ServerCredentials.createSsl(tls.ca, [{ private_key: tls.key, cert_chain: tls.cert }], true);
}

export function clientCredentials(tls: TlsMaterial): ChannelCredentials {
  return credentials.createSsl(tls.ca, tls.key, tls.cert);
}
