import { text } from "node:stream/consumers";
import { type KubeConfig } from "./config.ts";
import { KubeError } from "./errors.ts";
import { jsonLines } from "./lines.ts";
import {
  type Applied,
  apiVersionOf,
  type KubeObject,
  type ResourceType,
  type Sent,
  type WatchEvent,
} from "./object.ts";
import {
  asKubeError,
  type CallOptions,
  errorCode,
  type JsonOptions,
  type Method,
  type RawOptions,
  type RawResponse,
  statusError,
  Transport,
  type TransportOptions,
} from "./transport.ts";

export type { KubeObject, ResourceType, Applied, Sent, WatchEvent } from "./object.ts";
export { keyOf } from "./object.ts";
export { isAlreadyExists, isConflict, isNamespaceEnding, isNotFound, isUnreachable, KubeError } from "./errors.ts";
export type { CallOptions, JsonOptions, RawOptions, RawResponse } from "./transport.ts";

export interface KubeClientOptions extends TransportOptions {
  /** Owner of the fields that `apply` writes; required for apply. */
  fieldManager?: string;
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

/** The API server ends a watch after this time; the reader then goes on from its last version. */
const watchSeconds = 300;
/** Bookmarks come about once a minute: a watch silent for longer than two is taken for dead. */
const watchIdleMs = 150_000;

/**
 * A small typed client of a Kubernetes API server: warm TLS connections, a timeout on every call, errors that name
 * the object. GETs are repeated when the connection broke, and any call that the server refused with 429.
 */
export class KubeClient {
  readonly #transport: Transport;
  readonly #fieldManager: string | undefined;

  constructor(config: KubeConfig, options: KubeClientOptions = {}) {
    this.#transport = new Transport(config, options);
    this.#fieldManager = options.fieldManager;
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
    if (type.namespaced && object.metadata.namespace === undefined)
      throw new TypeError(`${type.kind} "${object.metadata.name}" needs a namespace`);
    const path = this.path(type, object.metadata.namespace, undefined, { fieldManager: this.#fieldManager });
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
      fieldManager: this.#fieldManager,
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
    const fieldManager = this.#fieldManager;
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
      fieldManager: this.#fieldManager,
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
    const { status, headers, body } = await this.raw("GET", path, {
      idleMs: watchIdleMs,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
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
   * is bounded; the body's only by `signal` and `idleMs`. Throws KubeError when no answer came.
   */
  raw(method: Method, path: string, options: RawOptions = {}): Promise<RawResponse> {
    return this.#transport.raw(method, path, options);
  }

  /** One JSON call; throws KubeError for a status of 400 or above and when no answer came. */
  request(method: Method, path: string, options: JsonOptions = {}): Promise<unknown> {
    return this.#transport.json(method, path, options);
  }

  /** Ends all connections, watches too. */
  close(): Promise<void> {
    return this.#transport.close();
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
}
