import { setTimeout as sleep } from "node:timers/promises";
import { type Logger } from "../log.ts";
import { type KubeClient } from "./client.ts";
import { isGone, isUnreachable } from "./errors.ts";
import { type KubeObject, keyOf, type ResourceType } from "./object.ts";

export interface ReflectorOptions {
  namespace?: string;
  labelSelector?: string;
  log: Logger;
}

/** `object` is undefined when it is gone; `previous` is what was known before. */
export type ChangeListener<T> = (key: string, object: T | undefined, previous: T | undefined) => void;

/** Delays between tries: short, because a restarted API server is back within seconds. */
const firstRetryMs = 100;
const lastRetryMs = 5_000;

/**
 * A local copy of a collection: list, watch with bookmarks, list again when the version is too old. It keeps its
 * last state while the API server is away, and reports changes, deletions found by a relist too, to its listeners.
 */
export class Reflector<T extends KubeObject> {
  readonly #client: KubeClient;
  readonly #type: ResourceType<T>;
  readonly #options: ReflectorOptions;
  readonly #objects = new Map<string, T>();
  readonly #byUid = new Map<string, T>();
  readonly #listeners = new Set<ChangeListener<T>>();
  readonly #synced = Promise.withResolvers<undefined>();
  #isSynced = false;
  #connectedSinceMs: number | undefined;
  #lastContactMs: number | undefined;
  #resourceVersion: string | undefined;

  constructor(client: KubeClient, type: ResourceType<T>, options: ReflectorOptions) {
    this.#client = client;
    this.#type = type;
    this.#options = options;
  }

  /** Resolves after the first list, its changes reported. */
  get synced(): Promise<void> {
    return this.#synced.promise;
  }

  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** Whether a watch is open now (a dead connection is noticed by TCP keepalive within about 20 s). */
  get connected(): boolean {
    return this.#connectedSinceMs !== undefined;
  }

  /** `performance.now()` of when the watch that is open now was opened; undefined while none is. */
  get connectedSinceMs(): number | undefined {
    return this.#connectedSinceMs;
  }

  /** `performance.now()` of the last answer or event, in milliseconds; undefined before the first. */
  get lastContactMs(): number | undefined {
    return this.#lastContactMs;
  }

  get(namespace: string | undefined, name: string): T | undefined {
    return this.#objects.get(namespace === undefined ? name : `${namespace}/${name}`);
  }

  byKey(key: string): T | undefined {
    return this.#objects.get(key);
  }

  byUid(uid: string): T | undefined {
    return this.#byUid.get(uid);
  }

  list(): T[] {
    return [...this.#objects.values()];
  }

  /** Calls `listener` for every change from now on; returns how to stop that. Its errors are logged. */
  onChange(listener: ChangeListener<T>): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  /** Runs until `signal` aborts; never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const log = this.#options.log.child({ reflector: this.#type.plural });
    const stopped = (): boolean => signal.aborted;
    let failures = 0;
    while (!stopped()) {
      try {
        if (this.#resourceVersion === undefined) await this.#relist(signal);
        await this.#follow(signal, () => {
          failures = 0;
        });
      } catch (error) {
        if (stopped()) break;
        // an answer that is no event means that our version is of no use (too old, or of another history)
        if (!isUnreachable(error)) this.#resourceVersion = undefined;
        failures += 1;
        const delayMs = Math.min(lastRetryMs, firstRetryMs * 2 ** (failures - 1)) * (0.5 + Math.random() / 2);
        if (isGone(error)) log.debug("version too old, listing again", { error });
        else log.warn("watch failed", { error, failures, delayMs: Math.round(delayMs) });
        await sleep(delayMs, undefined, { signal }).catch(() => undefined);
      } finally {
        this.#connectedSinceMs = undefined;
      }
    }
  }

  async #relist(signal: AbortSignal): Promise<void> {
    const { items, resourceVersion } = await this.#client.list(this.#type, { ...this.#scope(), signal });
    this.#contact();
    const seen = new Set(items.map(keyOf));
    for (const [key, object] of this.#objects) if (!seen.has(key)) this.#remove(key, object);
    for (const item of items) this.#put(item);
    this.#resourceVersion = resourceVersion;
    this.#isSynced = true;
    this.#synced.resolve(undefined);
  }

  async #follow(signal: AbortSignal, onEvent: () => void): Promise<void> {
    const resourceVersion = this.#resourceVersion ?? "";
    const onOpen = (): void => {
      this.#connectedSinceMs = performance.now();
      this.#contact();
    };
    for await (const event of this.#client.watch(this.#type, { ...this.#scope(), resourceVersion, signal, onOpen })) {
      onEvent();
      this.#contact();
      if (event.type === "BOOKMARK") {
        this.#resourceVersion = event.resourceVersion;
        continue;
      }
      if (event.type === "DELETED") this.#remove(keyOf(event.object), event.object);
      else this.#put(event.object);
      this.#resourceVersion = event.object.metadata.resourceVersion;
    }
  }

  #put(object: T): void {
    const key = keyOf(object);
    const known = this.#objects.get(key);
    if (known?.metadata.resourceVersion !== undefined) {
      if (known.metadata.resourceVersion === object.metadata.resourceVersion) return;
      // deleted and made again while we were not looking
      if (known.metadata.uid !== object.metadata.uid) this.#remove(key, known);
    }
    const previous = this.#objects.get(key);
    this.#objects.set(key, object);
    if (object.metadata.uid !== undefined) this.#byUid.set(object.metadata.uid, object);
    this.#report(key, object, previous);
  }

  #remove(key: string, object: T): void {
    const previous = this.#objects.get(key);
    this.#objects.delete(key);
    for (const uid of [object.metadata.uid, previous?.metadata.uid]) if (uid !== undefined) this.#byUid.delete(uid);
    if (previous !== undefined) this.#report(key, undefined, previous);
  }

  #report(key: string, object: T | undefined, previous: T | undefined): void {
    for (const listener of this.#listeners) {
      try {
        listener(key, object, previous);
      } catch (error) {
        this.#options.log.error("listener failed", { reflector: this.#type.plural, key, error });
      }
    }
  }

  #contact(): void {
    this.#lastContactMs = performance.now();
  }

  #scope(): { namespace?: string; labelSelector?: string } {
    const { namespace, labelSelector } = this.#options;
    return {
      ...(namespace === undefined ? {} : { namespace }),
      ...(labelSelector === undefined ? {} : { labelSelector }),
    };
  }
}
