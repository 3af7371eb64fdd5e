import { setTimeout as sleep } from "node:timers/promises";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { type Namespace, namespaces } from "@substrate/lib/kube/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type EventRecorder } from "./events.ts";

const lookEveryMs = 60_000;
const enforceLabel = "pod-security.kubernetes.io/enforce";

/** Why no atelet's pod can be made in the namespace; undefined when it can, as far as its labels say. */
export function podSecurityProblem({ metadata }: Namespace): string | undefined {
  const level = metadata.labels?.[enforceLabel];
  if (level !== "baseline" && level !== "restricted") return undefined;
  return `Namespace ${metadata.name} enforces PodSecurity "${level}", which forbids the privileged pods of the atelets: kubectl label namespace ${metadata.name} ${enforceLabel}=privileged --overwrite`;
}

/** Says by an Event what no part of ours could say by itself: the pods that it would come from are never made. */
export class NamespaceGuard {
  readonly #client: KubeClient;
  readonly #namespace: string;
  readonly #events: EventRecorder;
  readonly #log: Logger;

  constructor(client: KubeClient, namespace: string, events: EventRecorder, log: Logger) {
    this.#client = client;
    this.#namespace = namespace;
    this.#events = events;
    this.#log = log;
  }

  /** Looks once a minute until `signal` aborts; never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const stopped = (): boolean => signal.aborted;
    while (!stopped()) {
      await this.#look(signal);
      await sleep(lookEveryMs, undefined, { signal }).catch(() => undefined);
    }
  }

  async #look(signal: AbortSignal): Promise<void> {
    try {
      const found = await this.#client.get(namespaces, this.#namespace, undefined, { signal });
      const message = found && podSecurityProblem(found);
      if (found === undefined || message === undefined) return;
      this.#log.warn("atelets cannot run", { problem: message });
      // beside the other Events of the namespace, not in "default", where those of cluster-wide objects go
      const about = { ...found, metadata: { ...found.metadata, namespace: this.#namespace } };
      this.#events.record(about, { type: "Warning", reason: "PodSecurityForbids", message });
    } catch (error) {
      if (!signal.aborted) this.#log.debug("own namespace not read", { namespace: this.#namespace, error });
    }
  }
}
