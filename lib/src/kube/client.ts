import { type Readable } from "node:stream";
import { ExponentialBackoff, handleWhen, retry, type RetryPolicy } from "cockatiel";
import { type Dispatcher, Pool } from "undici";
import { type KubeConfig } from "./config.ts";
import { isUnreachable, KubeError } from "./errors.ts";
import {
  type Applied,
  apiVersionOf,
  type KubeObject,
  type ResourceType,
  type Sent,
  type WatchEvent,
} from "./object.ts";
import { jsonLines } from "./lines.ts";

export type { KubeObject, ObjectMeta, OwnerReference, ResourceType, Applied, Sent, WatchEvent } from "./object.ts";
export { apiVersionOf, keyOf } from "./object.ts";
export { isAlreadyExists, isConflict, isGone, isNotFound, isUnreachable, KubeError } from "./errors.ts";

export interface KubeClientOptions {
  /** Owner of the fields that `apply` writes; required for apply. */
  fieldManager?: string;
  /** Bound of every call but watches and raw bodies. Default 10 s. */
  timeoutMs?: number;
  userAgent?: string;
}

/** Bounds of one call: the client's timeout holds as well. */
export interface CallOptions {
  signal?: AbortSignal;
  timeoutMs?: number;
}

export interface ListOptions extends CallOptions {
  /** All namespaces when left out. */
  namespace?: string;
  labelSelector?: string;
  /** For instance `involvedObject.uid=…`. */
  fieldSelector?: string;
}

export interface WatchOptions {
  namespace?: string;
  labelSelector?: string;
  /** Begin after this version (of a list or an earlier event). */
  resourceVersion: string;
  signal?: AbortSignal;
  /** Called when the server has accepted the watch. */
  onOpen?: () => void;
}

export interface RawOptions {
  body?: string | Buffer | Readable;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export interface RawResponse {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  /** Must be read to its end or destroyed. */
  body: Readable;
}

type Method = "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE";

const defaultTimeoutMs = 10_000;
/** The API server ends a watch after this time; the reader then goes on from its last version. */
const watchSeconds = 300;
/** Bookmarks come about once a minute: a watch silent for longer than two is taken for dead. */
const watchIdleMs = 150_000;
/** Connections for calls; watches have their own, so that many of them never block a call. */
const callConnections = 32;

/**
 * A small typed client of a Kubernetes API server: warm TLS connections, a timeout on every call, errors that name
 * the object. GETs are repeated when the connection broke, and any call that the server refused with 429.
 */
export class KubeClient {
  readonly #config: KubeConfig;
  readonly #options: KubeClientOptions;
  readonly #prefix: string;
  readonly #calls: Pool;
  readonly #streams: Pool;
  readonly #retry: { reads: RetryPolicy; writes: RetryPolicy };

  constructor(config: KubeConfig, options: KubeClientOptions = {}) {
    this.#config = config;
    this.#options = options;
    const url = new URL(config.server);
    this.#prefix = url.pathname.replace(/\/+$/, "");
    const connect = {
      // undici's own default of 10 s is too long for a lease's renewal
      timeout: 5_000,
      keepAlive: true,
      keepAliveInitialDelay: 10_000,
      ...(config.ca === undefined ? {} : { ca: config.ca }),
      ...(config.cert === undefined ? {} : { cert: config.cert }),
      ...(config.key === undefined ? {} : { key: config.key }),
    };
    this.#calls = new Pool(url.origin, { connections: callConnections, connect });
    this.#streams = new Pool(url.origin, { connect, bodyTimeout: watchIdleMs });
    const backoff = new ExponentialBackoff({ initialDelay: 50, maxDelay: 1_000 });
    const throttled = (error: Error) => error instanceof KubeError && error.status === 429;
    this.#retry = {
      reads: retry(
        handleWhen((error) => throttled(error) || (isUnreachable(error) && error.reason === "Unreachable")),
        { maxAttempts: 3, backoff },
      ),
      writes: retry(handleWhen(throttled), { maxAttempts: 3, backoff }),
    };
  }

  /** The object, or undefined when there is none. Throws KubeError. */
  async get<T extends KubeObject>(
    type: ResourceType<T>,
    name: string,
    namespace?: string,
    options: CallOptions = {},
  ): Promise<T | undefined> {
    try {
      return (await this.request("GET", this.path(type, namespace, name), options)) as T;
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return undefined;
      throw error;
    }
  }

  async list<T extends KubeObject>(
    type: ResourceType<T>,
    options: ListOptions = {},
  ): Promise<{ items: T[]; resourceVersion: string }> {
    const path = this.path(type, options.namespace, undefined, {
      labelSelector: options.labelSelector,
      fieldSelector: options.fieldSelector,
    });
    const list = (await this.request("GET", path, options)) as { items: T[]; metadata: { resourceVersion: string } };
    // items of built-in kinds come without apiVersion and kind
    const items = list.items.map((item) => ({ ...item, ...this.#typeMeta(type) }));
    return { items, resourceVersion: list.metadata.resourceVersion };
  }

  async create<T extends KubeObject>(type: ResourceType<T>, object: Sent<T>, options: CallOptions = {}): Promise<T> {
    const path = this.path(type, object.metadata.namespace, undefined, { fieldManager: this.#options.fieldManager });
    return (await this.request("POST", path, { ...options, body: { ...object, ...this.#typeMeta(type) } })) as T;
  }

  /** PUT; conditional when `metadata.resourceVersion` is set (isConflict). */
  async replace<T extends KubeObject>(
    type: ResourceType<T>,
    object: Sent<T>,
    options: CallOptions & { subresource?: "status" } = {},
  ): Promise<T> {
    const path = this.path(type, object.metadata.namespace, object.metadata.name, {
      subresource: options.subresource,
      fieldManager: this.#options.fieldManager,
    });
    return (await this.request("PUT", path, { ...options, body: { ...object, ...this.#typeMeta(type) } })) as T;
  }

  /**
   * Server-side apply by this client's field manager. A `metadata.resourceVersion` makes it conditional (isConflict).
   * `force` takes fields over from other managers.
   */
  async apply<T extends KubeObject>(
    type: ResourceType<T>,
    object: Applied<T>,
    options: CallOptions & { subresource?: "status"; force?: true } = {},
  ): Promise<T> {
    const { fieldManager } = this.#options;
    if (fieldManager === undefined) throw new TypeError("apply needs the option fieldManager of KubeClient");
    const path = this.path(type, object.metadata.namespace, object.metadata.name, {
      subresource: options.subresource,
      fieldManager,
      force: options.force === true ? "true" : undefined,
    });
    return (await this.request("PATCH", path, {
      ...options,
      body: { ...object, ...this.#typeMeta(type) },
      contentType: "application/apply-patch+yaml",
    })) as T;
  }

  async mergePatch<T extends KubeObject>(
    type: ResourceType<T>,
    name: string,
    namespace: string | undefined,
    patch: object,
    options: CallOptions & { subresource?: "status" } = {},
  ): Promise<T> {
    const path = this.path(type, namespace, name, {
      subresource: options.subresource,
      fieldManager: this.#options.fieldManager,
    });
    return (await this.request("PATCH", path, {
      ...options,
      body: patch,
      contentType: "application/merge-patch+json",
    })) as T;
  }

  /** True when it was there; with `uid` only that very object is deleted (isConflict when it is another one). */
  async delete(
    type: ResourceType<KubeObject>,
    name: string,
    namespace?: string,
    options: CallOptions & { uid?: string } = {},
  ): Promise<boolean> {
    const body = options.uid === undefined ? {} : { preconditions: { uid: options.uid } };
    try {
      await this.request("DELETE", this.path(type, namespace, name), { ...options, body });
      return true;
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return false;
      throw error;
    }
  }

  /**
   * Events after `resourceVersion`, until the server ends the watch (about 5 min) or the connection is silent for
   * 150 s: then the iteration just ends. Throws KubeError (isGone: list again; isUnreachable).
   */
  async *watch<T extends KubeObject>(type: ResourceType<T>, options: WatchOptions): AsyncGenerator<WatchEvent<T>> {
    const path = this.path(type, options.namespace, undefined, {
      watch: "true",
      allowWatchBookmarks: "true",
      // spread, so that all watches do not end together
      timeoutSeconds: String(Math.round(watchSeconds * (1 + Math.random() * 0.2))),
      resourceVersion: options.resourceVersion,
      labelSelector: options.labelSelector,
    });
    const { status, headers, body } = await this.raw("GET", path, options.signal ? { signal: options.signal } : {});
    try {
      if (status >= 400) throw statusError("GET", path, status, headers, await text(body));
      options.onOpen?.();
      for await (const line of jsonLines(body)) {
        const event = line as { type: string; object: T & { code?: number; reason?: string; message?: string } };
        switch (event.type) {
          case "ADDED":
          case "MODIFIED":
          case "DELETED":
            yield { type: event.type, object: event.object };
            break;
          case "BOOKMARK":
            yield { type: "BOOKMARK", resourceVersion: event.object.metadata.resourceVersion ?? "" };
            break;
          default: {
            const { code = 500, reason = "Unknown", message = "no message" } = event.object;
            throw new KubeError(code, reason, `watch of ${type.plural}: ${message}`);
          }
        }
      }
    } catch (error) {
      if (errorCode(error) === "UND_ERR_BODY_TIMEOUT") return;
      throw asKubeError(error, `watch of ${type.plural}`);
    } finally {
      body.destroy();
    }
  }

  /**
   * One HTTP exchange with our credentials, its answer as a stream, whatever the status. The time until the headers
   * is bounded; the body's only by `signal`.
   */
  async raw(method: Method, path: string, options: RawOptions = {}): Promise<RawResponse> {
    try {
      const response = await this.#streams.request({
        method,
        path: this.#prefix + path,
        headers: this.#headers(options.headers),
        body: options.body ?? null,
        headersTimeout: this.#options.timeoutMs ?? defaultTimeoutMs,
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
  async request(
    method: Method,
    path: string,
    options: CallOptions & { body?: object; contentType?: string } = {},
  ): Promise<unknown> {
    const policy = method === "GET" ? this.#retry.reads : this.#retry.writes;
    return policy.execute(() => this.#once(method, path, options), options.signal);
  }

  async #once(
    method: Method,
    path: string,
    options: CallOptions & { body?: object; contentType?: string },
  ): Promise<unknown> {
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

  /** Ends all connections, watches too. */
  async close(): Promise<void> {
    await Promise.all([this.#calls.destroy(), this.#streams.destroy()]);
  }

  /** The URL path of a collection (no name) or an object. */
  path(
    type: ResourceType<KubeObject>,
    namespace: string | undefined,
    name?: string,
    query: Record<string, string | undefined> & { subresource?: string | undefined } = {},
  ): string {
    if (name === "") throw new TypeError(`${type.kind}: the object has no name`);
    if (type.namespaced && namespace === undefined && name !== undefined)
      throw new TypeError(`${type.kind} "${name}" needs a namespace`);
    const { subresource, ...rest } = query;
    const parts = [type.group === "" ? "/api" : `/apis/${type.group}`, type.version];
    if (type.namespaced && namespace !== undefined) parts.push("namespaces", encodeURIComponent(namespace));
    parts.push(type.plural);
    if (name !== undefined) parts.push(encodeURIComponent(name));
    if (subresource !== undefined) parts.push(subresource);
    const parameters = new URLSearchParams();
    for (const [key, value] of Object.entries(rest)) if (value !== undefined) parameters.set(key, value);
    return parts.join("/") + (parameters.size > 0 ? `?${parameters.toString()}` : "");
  }

  #typeMeta(type: ResourceType<KubeObject>): { apiVersion: string; kind: string } {
    return { apiVersion: apiVersionOf(type), kind: type.kind };
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

async function text(body: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of body as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

function statusError(
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

function errorCode(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}

function asKubeError(error: unknown, what: string): KubeError {
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
