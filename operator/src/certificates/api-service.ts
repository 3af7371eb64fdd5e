import { setTimeout as sleep } from "node:timers/promises";
import { isConflict, type KubeClient } from "@substrate/lib/kube/client.ts";
import { apiServices } from "@substrate/lib/kube/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type TlsSource } from "@substrate/lib/rpc/tls.ts";
import { group, version } from "../api/discovery.ts";
import { type ApiServiceTarget } from "../config.ts";
import { isOwnedBy, type Owner } from "./owner.ts";

/** Somebody may have changed or deleted it. */
const lookEveryMs = 10_000;
const retryMs = 1_000;
const priorities = { groupPriorityMinimum: 1_000, versionPriority: 15 };

export interface ApiServiceKeeperOptions {
  client: KubeClient;
  namespace: string;
  target: ApiServiceTarget;
  tls: TlsSource;
  owner: Owner;
  log: Logger;
}

/** The leader's work: the APIService names the operators' Service and trusts exactly the authorities that the parts do. */
export class ApiServiceKeeper {
  readonly #options: ApiServiceKeeperOptions;

  constructor(options: ApiServiceKeeperOptions) {
    this.#options = options;
  }

  /** Until `signal` aborts; never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { log, tls } = this.#options;
    const stopped = (): boolean => signal.aborted;
    while (!stopped()) {
      const woken = new AbortController();
      const stopListening = tls.onRenewal(() => {
        woken.abort();
      });
      let delayMs = lookEveryMs;
      try {
        await this.#look();
      } catch (error) {
        if (!isConflict(error) && !stopped()) log.warn("APIService not kept; tried again soon", { error });
        delayMs = retryMs;
      }
      await sleep(delayMs, undefined, { signal: AbortSignal.any([signal, woken.signal]) }).catch(() => undefined);
      stopListening();
    }
  }

  async #look(): Promise<void> {
    const { client, log, namespace, owner, target, tls } = this.#options;
    const name = `${version}.${group}`;
    const caBundle = tls.current.ca.toString("base64");
    const service = { namespace, name: target.name, port: target.port };
    const found = await client.get(apiServices, name);
    const ownerReferences = await owner.references();
    if (
      found !== undefined &&
      isOwnedBy(found.metadata, ownerReferences) &&
      found.spec.caBundle === caBundle &&
      found.spec.service?.namespace === service.namespace &&
      found.spec.service.name === service.name &&
      found.spec.service.port === service.port
    ) {
      return;
    }
    const spec = { ...found?.spec, group, version, ...priorities, caBundle, service };
    if (found === undefined) await client.create(apiServices, { metadata: { name, ownerReferences }, spec });
    else await client.replace(apiServices, { ...found, metadata: { ...found.metadata, ownerReferences }, spec });
    log.info("APIService written", { apiService: name, service: `${namespace}/${target.name}:${target.port}` });
  }
}
