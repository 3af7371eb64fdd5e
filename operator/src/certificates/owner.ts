import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { type ObjectMeta, type OwnerReference } from "@substrate/lib/kube/object.ts";
import { clusterRoles } from "@substrate/lib/kube/types.ts";
import { type Logger } from "@substrate/lib/log.ts";

/**
 * The ClusterRole of this installation: what the operator makes for itself goes with it at an uninstall. It is there
 * before everything else, outlives upgrades, and may own objects of namespaces and of the cluster.
 */
export class Owner {
  readonly #client: KubeClient;
  readonly #name: string | undefined;
  readonly #log: Logger;
  #isMissing = false;

  constructor(client: KubeClient, name: string | undefined, log: Logger) {
    this.#client = client;
    this.#name = name;
    this.#log = log;
  }

  /** For `metadata.ownerReferences`; empty without an owner. */
  async references(): Promise<OwnerReference[]> {
    if (this.#name === undefined) return [];
    const uid = (await this.#client.get(clusterRoles, this.#name))?.metadata.uid;
    if (uid === undefined && !this.#isMissing) {
      const message = "the owner is not there: what the operator makes for itself stays after an uninstall";
      this.#log.warn(message, { clusterRole: this.#name });
    }
    this.#isMissing = uid === undefined;
    if (uid === undefined) return [];
    return [{ apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", name: this.#name, uid }];
  }
}

/** Whether the object already has exactly these owners. */
export function isOwnedBy({ ownerReferences = [] }: ObjectMeta, references: readonly OwnerReference[]): boolean {
  const uids = (list: readonly OwnerReference[]): string => list.map(({ uid }) => uid).join(" ");
  return uids(ownerReferences) === uids(references);
}
