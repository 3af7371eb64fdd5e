import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { configMaps } from "@substrate/lib/kube/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { z } from "zod";
import { type FrontProxyFiles } from "../config.ts";

/** Who speaks for callers: kube-apiserver's own client certificate. */
export interface FrontProxyIdentity {
  /** PEM, one or several. */
  authorities: string;
  /** Common names; none: any that the authorities have signed. */
  allowedNames: readonly string[];
}

/** Every cluster's API server writes it, for servers like this one (Kubernetes documentation, "aggregation layer"). */
const source = { namespace: "kube-system", name: "extension-apiserver-authentication" };
const rereadEveryMs = 60_000;
const retryMs = 2_000;
const namesSchema = z.array(z.string());

/** The front proxy's identity as it is now; clusters replace their authority from time to time. */
export class FrontProxy {
  readonly #listeners = new Set<() => void>();
  #current: FrontProxyIdentity;

  constructor(identity: FrontProxyIdentity) {
    this.#current = identity;
  }

  static fromFiles({ caFile, allowedNames }: FrontProxyFiles): FrontProxy {
    return new FrontProxy({ authorities: readFileSync(caFile, "utf8"), allowedNames });
  }

  /** Waits until the cluster says it, then follows it until `signal` aborts. */
  static async ofCluster(client: KubeClient, log: Logger, signal: AbortSignal): Promise<FrontProxy> {
    for (;;) {
      try {
        const proxy = new FrontProxy(await read(client, signal));
        void proxy.#follow(client, log, signal);
        return proxy;
      } catch (error) {
        signal.throwIfAborted();
        log.warn("the front proxy's authority is not known yet", { error });
      }
      await sleep(retryMs, undefined, { signal });
    }
  }

  get current(): FrontProxyIdentity {
    return this.#current;
  }

  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  async #follow(client: KubeClient, log: Logger, signal: AbortSignal): Promise<void> {
    const stopped = (): boolean => signal.aborted;
    while (!stopped()) {
      await sleep(rereadEveryMs, undefined, { signal }).catch(() => undefined);
      if (stopped()) return;
      try {
        const identity = await read(client, signal);
        if (JSON.stringify(identity) === JSON.stringify(this.#current)) continue;
        this.#current = identity;
        for (const listener of this.#listeners) listener();
        log.info("the front proxy's authority has changed", { allowedNames: identity.allowedNames });
      } catch (error) {
        if (!stopped()) log.warn("the front proxy's authority was not read again: the last one stays", { error });
      }
    }
  }
}

async function read(client: KubeClient, signal: AbortSignal): Promise<FrontProxyIdentity> {
  const what = `ConfigMap ${source.namespace}/${source.name}`;
  const data = (await client.get(configMaps, source.name, source.namespace, { signal }))?.data;
  const authorities = data?.["requestheader-client-ca-file"];
  if (authorities === undefined) {
    throw new Error(
      `${what} has no requestheader-client-ca-file: kube-apiserver needs --requestheader-client-ca-file for aggregated APIs`,
    );
  }
  const names = data?.["requestheader-allowed-names"] ?? "[]";
  const allowedNames = namesSchema.safeParse(JSON.parse(names));
  if (!allowedNames.success) throw new Error(`${what}: requestheader-allowed-names is not a list of names: ${names}`);
  return { authorities, allowedNames: allowedNames.data };
}
