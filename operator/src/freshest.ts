import { type KubeObject, keyOf } from "@substrate/lib/kube/client.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";

/**
 * A reflector's objects, or the answers of our own writes while the watch hasn't brought them yet: without them a
 * reconcile right after a write would start from the state before it.
 */
export class Freshest<T extends KubeObject> {
  readonly #reflector: Reflector<T>;
  readonly #written = new Map<string, T>();

  constructor(reflector: Reflector<T>) {
    this.#reflector = reflector;
    reflector.onChange((key, object) => {
      const written = this.#written.get(key);
      if (written !== undefined && (object === undefined || !isNewer(written, object))) this.#written.delete(key);
    });
  }

  get(key: string): T | undefined {
    const cached = this.#reflector.byKey(key);
    const written = this.#written.get(key);
    if (cached === undefined || written === undefined) return cached;
    return isNewer(written, cached) ? written : cached;
  }

  /** Keeps an answer of the API server until the watch has caught up with it. */
  remember(object: T): void {
    const cached = this.#reflector.byKey(keyOf(object));
    if (cached !== undefined && isNewer(object, cached)) this.#written.set(keyOf(object), object);
  }
}

/** Resource versions of one collection are ordered numbers in every API server on etcd (KEP-5504 makes it a promise). */
function isNewer(a: KubeObject, b: KubeObject): boolean {
  if (a.metadata.uid !== b.metadata.uid) return false;
  return BigInt(a.metadata.resourceVersion ?? "0") > BigInt(b.metadata.resourceVersion ?? "0");
}
