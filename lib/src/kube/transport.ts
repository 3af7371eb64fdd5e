import { type Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { ExponentialBackoff, handleWhen, retry, type RetryPolicy } from "cockatiel";
import { type Dispatcher, Pool } from "undici";
import { type KubeConfig } from "./config.ts";
import { isDenied, isUnreachable, KubeError } from "./errors.ts";

/** Bounds of one call: the client's timeout holds as well. */
export interface CallOptions {
  signal?: AbortSignal;
  timeoutMs?: number;
}

export interface TransportOptions {
  /** Bound of every call, and of a stream's headers. Default 10 s. */
  timeoutMs?: number;
  userAgent?: string;
  /**
   * How long a JSON call that the authorizer denies is repeated, at most for the call's own timeoutMs; default 0. For
   * a part whose roles are given: an API server that has just begun denies what it has not read the roles of yet.
   */
  deniedPatienceMs?: number;
}

export interface RawOptions {
  body?: string | Buffer | Readable;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Longest silence of the answer's body; without it a body may be silent for ever. */
  idleMs?: number;
}

export interface RawResponse {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  /** Must be read to its end or destroyed. */
  body: Readable;
}

export type Method = "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE";

export interface JsonOptions extends CallOptions {
  body?: object;
  /** Default application/json. */
  contentType?: string;
}

const defaultTimeoutMs = 10_000;
/** undici's own default of 10 s is too long for the renewal of a Lease. */
const connectTimeoutMs = 5_000;
/** Below the 90 s after which the API server closes idle connections (IdleTimeout in apiserver's secure_serving.go). */
const keepAliveMs = 60_000;
/** Between repetitions of a denied call; the pause doubles. */
const firstDeniedPauseMs = 50;
const lastDeniedPauseMs = 1_000;
/** Connections for calls; streams have their own, so that many watches never block a call. */
const callConnections = 32;

/** HTTP to one API server: warm connections, credentials, timeouts, repetition where it is safe. */
export class Transport {
  readonly #config: KubeConfig;
  readonly #options: TransportOptions;
  readonly #prefix: string;
  readonly #calls: Pool;
  readonly #streams: Pool;
  readonly #retry: { reads: RetryPolicy; writes: RetryPolicy };

  constructor(config: KubeConfig, options: TransportOptions) {
    this.#config = config;
    this.#options = options;
    const url = new URL(config.server);
    this.#prefix = url.pathname.replace(/\/+$/, "");
    const connect = {
      timeout: connectTimeoutMs,
      keepAlive: true,
      keepAliveInitialDelay: 10_000,
      ...(config.ca === undefined ? {} : { ca: config.ca }),
      ...(config.cert === undefined ? {} : { cert: config.cert }),
      ...(config.key === undefined ? {} : { key: config.key }),
    };
    this.#calls = new Pool(url.origin, { connections: callConnections, keepAliveTimeout: keepAliveMs, connect });
    this.#streams = new Pool(url.origin, { connect });
    const backoff = new ExponentialBackoff({ initialDelay: 50, maxDelay: 1_000 });
    const throttled = (error: Error): boolean => error instanceof KubeError && error.status === 429;
    this.#retry = {
      reads: retry(
        handleWhen((error) => throttled(error) || (isUnreachable(error) && error.reason === "Unreachable")),
        { maxAttempts: 3, backoff },
      ),
      writes: retry(handleWhen(throttled), { maxAttempts: 3, backoff }),
    };
  }

  /**
   * One HTTP exchange with our credentials, its answer as a stream, whatever the status. The time until the headers
   * is bounded; the body's only by `signal` and `idleMs`.
   */
  async raw(method: Method, path: string, options: RawOptions = {}): Promise<RawResponse> {
    try {
      const response = await this.#streams.request({
        method,
        path: this.#prefix + path,
        headers: this.#headers(options.headers),
        body: options.body ?? null,
        headersTimeout: this.#options.timeoutMs ?? defaultTimeoutMs,
        bodyTimeout: options.idleMs ?? 0,
        ...(options.signal === undefined ? {} : { signal: options.signal }),
      });
      // destroying an unread body is ours to do and no error; readers see errors through their own listeners
      response.body.on("error", () => undefined);
      return { status: response.statusCode, headers: response.headers, body: response.body };
    } catch (error) {
      throw asKubeError(error, `${method} ${path}`);
    }
  }

  /** One JSON call; throws KubeError for a status of 400 or above and when no answer came. */
  async json(method: Method, path: string, options: JsonOptions = {}): Promise<unknown> {
    const policy = method === "GET" ? this.#retry.reads : this.#retry.writes;
    const patienceMs = Math.min(this.#options.deniedPatienceMs ?? 0, options.timeoutMs ?? Number.POSITIVE_INFINITY);
    const endMs = performance.now() + patienceMs;
    for (let pauseMs = firstDeniedPauseMs; ; pauseMs = Math.min(pauseMs * 2, lastDeniedPauseMs)) {
      try {
        return await policy.execute(() => this.#once(method, path, options), options.signal);
      } catch (error) {
        if (!isDenied(error) || performance.now() + pauseMs > endMs) throw error;
      }
      // given up during the pause: the call itself says so in its own words
      await sleep(pauseMs, undefined, { signal: options.signal }).catch(() => undefined);
    }
  }

  async #once(method: Method, path: string, options: JsonOptions): Promise<unknown> {
    const timeout = AbortSignal.timeout(options.timeoutMs ?? this.#options.timeoutMs ?? defaultTimeoutMs);
    const signal = options.signal === undefined ? timeout : AbortSignal.any([timeout, options.signal]);
    let response: Dispatcher.ResponseData;
    let body: string;
    try {
      response = await this.#calls.request({
        method,
        path: this.#prefix + path,
        headers: this.#headers(
          options.body === undefined ? {} : { "content-type": options.contentType ?? "application/json" },
        ),
        body: options.body === undefined ? null : JSON.stringify(options.body),
        signal,
      });
      body = await response.body.text();
    } catch (error) {
      throw asKubeError(error, `${method} ${path}`);
    }
    if (response.statusCode >= 400) throw statusError(method, path, response.statusCode, response.headers, body);
    return body === "" ? undefined : JSON.parse(body);
  }

  /** Ends all connections, streams too. */
  async close(): Promise<void> {
    await Promise.all([this.#calls.destroy(), this.#streams.destroy()]);
  }

  #headers(extra: Record<string, string> = {}): Record<string, string> {
    return {
      accept: "application/json",
      ...(this.#options.userAgent === undefined ? {} : { "user-agent": this.#options.userAgent }),
      ...(this.#config.token === undefined ? {} : { authorization: `Bearer ${this.#config.token()}` }),
      ...extra,
    };
  }
}

/** The answer's Status object as an error. */
export function statusError(
  method: string,
  path: string,
  status: number,
  headers: RawResponse["headers"],
  body: string,
): KubeError {
  let reason = "Unknown";
  let message = body.trim() === "" ? "no message" : body.trim().slice(0, 500);
  if (body.startsWith("{")) {
    const parsed = JSON.parse(body) as { reason?: string; message?: string };
    reason = parsed.reason ?? reason;
    message = parsed.message ?? message;
  }
  const seconds = Number(headers["retry-after"]);
  return new KubeError(status, reason, `${method} ${path.split("?")[0] ?? path}: ${String(status)} ${message}`, {
    retryAfterMs: Number.isFinite(seconds) ? seconds * 1_000 : undefined,
  });
}

/** The code of an error of Node or undici. */
export function errorCode(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}

/** Why no (whole) answer came. */
export function asKubeError(error: unknown, what: string): KubeError {
  if (error instanceof KubeError) return error;
  const timedOut =
    (error instanceof Error && error.name === "TimeoutError") ||
    ["UND_ERR_HEADERS_TIMEOUT", "UND_ERR_CONNECT_TIMEOUT", "UND_ERR_BODY_TIMEOUT"].includes(errorCode(error) ?? "");
  const aborted = error instanceof Error && error.name === "AbortError";
  const reason = timedOut ? "Timeout" : aborted ? "Aborted" : "Unreachable";
  const message = error instanceof Error ? error.message : String(error);
  return new KubeError(0, reason, `${what.split("?")[0] ?? what}: no answer from the API server: ${message}`, {
    cause: error,
  });
}
