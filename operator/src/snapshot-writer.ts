import { type Snapshot, snapshots, type SnapshotStatus } from "@substrate/crds/index.ts";
import { isConflict, isNotFound, type KubeClient } from "@substrate/lib/kube/client.ts";
import { type StoredSnapshot } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { differs } from "./actor-status.ts";
import { type ConditionFacts, mergeConditions, type Trouble } from "./conditions.ts";
import { type Freshest } from "./freshest.ts";
import { statusFidelity } from "./generations.ts";
import { type OperatorMetrics } from "./metrics.ts";

/** On Snapshots that own a prefix of a store: tags and golden ones. */
export const snapshotFinalizer = "substrate.run/snapshot";

/** Whether deleting the object has to delete stored data: a generation's goes with its actor. */
export function ownsPrefix({ spec }: Snapshot): boolean {
  return spec.tag !== undefined || spec.templateRef !== undefined;
}

export interface SnapshotWriterOptions {
  client: KubeClient;
  snapshots: Freshest<Snapshot>;
  metrics: OperatorMetrics;
}

/** Writes Snapshots' statuses and finalizers, each only when it differs. */
export class SnapshotWriter {
  readonly #options: SnapshotWriterOptions;

  constructor(options: SnapshotWriterOptions) {
    this.#options = options;
  }

  /** The whole status: what is not among `facts` is taken off. False when the object is gone or another one by now. */
  async status(
    snapshot: Snapshot,
    facts: Partial<SnapshotStatus>,
    conditions: readonly ConditionFacts[],
  ): Promise<boolean> {
    const { client, metrics } = this.#options;
    const { name, namespace, uid = "", generation = 0 } = snapshot.metadata;
    const before = snapshot.status;
    const status = {
      ...facts,
      observedGeneration: generation,
      conditions: mergeConditions(before?.conditions, conditions, generation, new Date()),
    };
    if (!differs(status, before)) return true;
    try {
      const applied = { metadata: { name, namespace: namespace ?? "", uid }, status };
      this.#options.snapshots.remember(await client.apply(snapshots, applied, { subresource: "status", force: true }));
    } catch (error) {
      if (isNotFound(error) || isConflict(error)) return false;
      throw error;
    }
    metrics.statusWrite("Snapshot");
    return true;
  }

  /** Before anything is stored: then its deletion comes by us. Throws KubeError (isConflict when it has changed). */
  async addFinalizer(snapshot: Snapshot): Promise<Snapshot> {
    const finalizers = snapshot.metadata.finalizers ?? [];
    if (finalizers.includes(snapshotFinalizer)) return snapshot;
    return this.#finalizers(snapshot, [...finalizers, snapshotFinalizer]);
  }

  /** Throws KubeError (isConflict when it has changed since it was read). */
  async removeFinalizer(snapshot: Snapshot): Promise<void> {
    const rest = (snapshot.metadata.finalizers ?? []).filter((name) => name !== snapshotFinalizer);
    try {
      await this.#finalizers(snapshot, rest);
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }

  async #finalizers(snapshot: Snapshot, finalizers: string[]): Promise<Snapshot> {
    const { name, namespace, resourceVersion } = snapshot.metadata;
    const patch = { metadata: { resourceVersion, finalizers } };
    const written = await this.#options.client.mergePatch(snapshots, name, namespace, patch);
    this.#options.snapshots.remember(written);
    return written;
  }
}

/** What a status says of data that is stored under a prefix of its own. */
export function storedFacts(stored: StoredSnapshot): Partial<SnapshotStatus> {
  return {
    storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED",
    fidelity: statusFidelity(stored.fidelity),
    location: stored.location,
    digest: stored.digest,
    sizeBytes: Number(stored.sizeBytes),
    storedBytes: Number(stored.storedBytes),
    revision: stored.revision,
    sandbox: { class: "gvisor", runtime: stored.runtime },
    ...(stored.generation > 0n ? { generation: Number(stored.generation) } : {}),
  };
}

export function completedConditions(message: string): ConditionFacts[] {
  return [
    { type: "Ready", status: "True", reason: "Completed", message },
    { type: "Durable", status: "True", reason: "Completed", message: "All of it is in the store" },
  ];
}

export function pendingConditions({ reason, message }: Trouble): ConditionFacts[] {
  return [
    { type: "Ready", status: "False", reason, message },
    { type: "Durable", status: "False", reason: "NotStored", message: "It is not in the store" },
  ];
}

/** Stalled is what tools that wait for Ready take for a failure. */
export function failedConditions(trouble: Trouble): ConditionFacts[] {
  return [
    ...pendingConditions(trouble),
    { type: "Stalled", status: "True", reason: "Failed", message: trouble.message },
  ];
}
