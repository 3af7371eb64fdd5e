import { readFileSync } from "node:fs";
import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { S3Client } from "@aws-sdk/client-s3";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { errnoOf } from "../folder.ts";
import { type BucketSettings } from "../settings.ts";
import { folderCredentials } from "./credentials.ts";
import { isUntrusted, storeFailure } from "./failure.ts";
import { type S3Limits } from "./limits.ts";
import { signHeadersOnly } from "./payload.ts";
import { Retries } from "./retries.ts";
import { Transport, type Bound } from "./transport.ts";

/** The way to one bucket: the SDK's client, its bounds, and errors in words of the store's settings. */
export class S3Connection {
  readonly settings: BucketSettings;
  readonly limits: S3Limits;
  readonly client: S3Client;
  readonly #https: HttpsAgent;
  #authorities: Buffer | undefined;

  constructor(settings: BucketSettings, limits: S3Limits) {
    this.settings = settings;
    this.limits = limits;
    const sockets = { keepAlive: true, maxSockets: 4 * limits.parallelParts + 16 };
    this.#https = new HttpsAgent(sockets);
    this.#readAuthorities();
    const { credentialsDir, endpoint, region } = settings;
    this.client = new S3Client({
      forcePathStyle: settings.pathStyle,
      retryStrategy: new Retries(limits.pauseMs),
      // undone is only what is sent for nothing; each round trip would be twice as long
      expectContinueHeader: false,
      // A stream that is cut is stored truncated by some servers unless it carries checksums.
      requestChecksumCalculation: "WHEN_SUPPORTED",
      responseChecksumValidation: "WHEN_REQUIRED",
      followRegionRedirects: false,
      requestHandler: {
        connectionTimeout: limits.connectMs,
        throwOnRequestTimeout: true,
        httpAgent: new HttpAgent(sockets),
        httpsAgent: this.#https,
      },
      ...(endpoint === undefined ? {} : { endpoint }),
      ...(region === undefined ? {} : { region }),
      ...(credentialsDir === undefined ? {} : { credentials: folderCredentials(settings.name, credentialsDir) }),
    });
    this.client.config.requestHandler = new Transport(
      this.client.config.requestHandler,
      limits,
      () => this.#authorities,
    );
    if (endpoint?.startsWith("http:") !== true) this.#signHeadersOnly();
  }

  close(): void {
    this.client.destroy();
  }

  key(key: string): string {
    return `${this.settings.prefix}${key}`;
  }

  /** For a request without much data. */
  small(signal?: AbortSignal): Bound {
    return bound(this.limits.attemptMs, this.limits.requestMs, signal);
  }

  /** For a request that carries a pack or a part, or makes the server copy one. */
  large(signal?: AbortSignal): Bound {
    return bound(this.limits.partAttemptMs, this.limits.partMs, signal);
  }

  /** Runs requests; what fails is told in words of the settings. @param what names the key. */
  async about<T>(what: string, action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (error) {
      // a rotated authority: the next try trusts it
      if (isUntrusted(error)) this.#readAuthorities();
      throw storeFailure(this.settings, what, error);
    }
  }

  #readAuthorities(): void {
    const { caPath, name } = this.settings;
    if (caPath === undefined) return;
    try {
      this.#authorities = readFileSync(caPath);
      this.#https.options.ca = this.#authorities;
    } catch (error) {
      const message = `the store ${name}: ${caPath} cannot be read (${errnoOf(error)}): mend the file of --store-ca`;
      throw new SubstrateError("STORE_UNAVAILABLE", message, { cause: error });
    }
  }

  /** Under TLS no body needs a sha256 in its signature. */
  #signHeadersOnly(): void {
    this.client.middlewareStack.add(
      (next) => (args) => {
        signHeadersOnly(args);
        return next(args);
      },
      { step: "build", name: "signHeadersOnly" },
    );
  }
}

function bound(attemptMs: number, allMs: number, signal?: AbortSignal): Bound {
  const deadline = AbortSignal.timeout(allMs);
  return {
    abortSignal: signal === undefined ? deadline : AbortSignal.any([signal, deadline]),
    requestTimeout: attemptMs,
  };
}
