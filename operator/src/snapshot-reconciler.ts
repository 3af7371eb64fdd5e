import { type Actor, NOT_OBSERVED, type Snapshot, snapshots, type SnapshotStatus } from "@substrate/crds/index.ts";
import { type Generation } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { isAlreadyExists, isConflict, isNamespaceEnding, type KubeClient } from "@substrate/lib/kube/client.ts";
import { type Atelets } from "./atelets.ts";
import { type EventRecorder } from "./events.ts";
import { type Freshest } from "./freshest.ts";
import { actorUidLabel, parseSnapshotName, snapshotStorageState, statusFidelity } from "./generations.ts";
import { type ReconcileResult } from "./queue.ts";
import { ownsPrefix, type SnapshotWriter } from "./snapshot-writer.ts";
import { type StoredDeletion } from "./stored-deletion.ts";
import { type TagReconciler } from "./tag-reconciler.ts";

export interface SnapshotReconcilerOptions {
  client: KubeClient;
  actors: Freshest<Actor>;
  snapshots: Freshest<Snapshot>;
  atelets: Atelets;
  events: EventRecorder;
  writer: SnapshotWriter;
  tags: TagReconciler;
  storedDeletion: StoredDeletion;
}

/** What is known of one generation: all of it from a node's report, or only what the Actor's status keeps. */
interface Known {
  status: Partial<SnapshotStatus>;
  /** From a report: fields that it lacks are really absent. */
  whole: boolean;
}

/** One Snapshot object: a tag, a golden one, or one for each completed generation that is kept. */
export class SnapshotReconciler {
  readonly #options: SnapshotReconcilerOptions;

  constructor(options: SnapshotReconcilerOptions) {
    this.#options = options;
  }

  async reconcile(key: string): Promise<ReconcileResult> {
    const [namespace = "", name = ""] = key.split("/");
    const existing = this.#options.snapshots.get(key);
    const identity = parseSnapshotName(name);
    if (existing !== undefined && ownsPrefix(existing)) {
      if (existing.metadata.deletionTimestamp !== undefined) return this.#options.storedDeletion.run(existing);
      // a golden one is its Template's to make
      return existing.spec.tag === undefined ? {} : this.#options.tags.reconcile(existing);
    }
    if (existing !== undefined && existing.metadata.labels?.[actorUidLabel] === undefined) {
      return this.#foreign(existing);
    }
    if (identity === undefined) return {};
    const actor = this.#options.actors.get(`${namespace}/${identity.actorName}`);
    // without its actor the garbage collector takes it, by its owner reference
    if (actor === undefined || actor.metadata.deletionTimestamp !== undefined) return {};
    if (existing !== undefined && existing.metadata.labels?.[actorUidLabel] !== actor.metadata.uid) return {};
    const known = this.#known(actor, identity.generation);
    if (known === "gone") {
      const uid = existing?.metadata.uid;
      if (existing === undefined || uid === undefined) return {};
      try {
        await this.#options.client.delete(snapshots, name, namespace, { uid });
      } catch (error) {
        if (!isConflict(error)) throw error;
      }
      return {};
    }
    if (known === undefined) return {};
    const completed = known.status.storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED";
    if (existing === undefined && !completed) return {};
    const snapshot = existing ?? (await this.#create(actor, identity.generation, name));
    if (snapshot !== undefined) await this.#writeStatus(snapshot, known);
    return {};
  }

  /** "gone": the node has released it. Undefined: nothing is known now. */
  #known(actor: Actor, generation: number): Known | "gone" | undefined {
    const { atelets } = this.#options;
    const { assignment, snapshots: entries } = actor.status ?? {};
    const entry = entries?.find((candidate) => candidate.generation === generation);
    if (assignment?.nodeName === undefined) {
      if (entry === undefined) return entries === undefined ? undefined : "gone";
      const nodeName = atelets.localNode(actor.metadata.uid ?? "", generation, entry.nodeName);
      const { owner, storageState, fidelity, sizeBytes } = entry;
      const facts = { owner, storageState, generation, fidelity, ...(sizeBytes === undefined ? {} : { sizeBytes }) };
      return { status: nodeName === undefined || nodeName === "" ? facts : { ...facts, nodeName }, whole: false };
    }
    const report = atelets.report(assignment.nodeName, actor.metadata.uid ?? "");
    if (report === undefined) return undefined;
    const found = report.generations.find((candidate) => Number(candidate.generation) === generation);
    // an empty list comes from a node that has not heard of the grant yet
    if (found === undefined) return report.generations.length === 0 ? undefined : "gone";
    return { status: wholeStatus(found, assignment.nodeName), whole: true };
  }

  async #create(actor: Actor, generation: number, name: string): Promise<Snapshot | undefined> {
    const { namespace = "", uid = "" } = actor.metadata;
    try {
      const created = await this.#options.client.create(snapshots, {
        metadata: {
          name,
          namespace,
          labels: { [actorUidLabel]: uid, "substrate.run/actor": actor.metadata.name },
          ownerReferences: [{ apiVersion: actor.apiVersion, kind: actor.kind, name: actor.metadata.name, uid }],
        },
        spec: { actorRef: { name: actor.metadata.name }, generation },
      });
      return created;
    } catch (error) {
      // the watch will bring it; a foreign object under our name is said by its own reconcile
      if (isAlreadyExists(error) || isNamespaceEnding(error)) return undefined;
      throw error;
    }
  }

  async #writeStatus(snapshot: Snapshot, known: Known): Promise<void> {
    const facts: Partial<SnapshotStatus> = known.whole ? known.status : { ...snapshot.status, ...known.status };
    if (known.status.nodeName === undefined) delete facts.nodeName;
    const durable = facts.storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED";
    const condition = durable
      ? ({ type: "Durable", status: "True", reason: "Completed", message: "All of it is in the store" } as const)
      : ({ type: "Durable", status: "False", reason: "NotStored", message: "It is not in the store" } as const);
    await this.#options.writer.status(snapshot, facts, [condition]);
  }

  #foreign(snapshot: Snapshot): ReconcileResult {
    const isNew = (snapshot.status?.observedGeneration ?? NOT_OBSERVED) === NOT_OBSERVED;
    if (isNew && snapshot.metadata.deletionTimestamp === undefined) {
      const message =
        "Not made by the operator: generations' Snapshots come by themselves; to keep a state, set spec.tag";
      this.#options.events.record(snapshot, { type: "Warning", reason: "Unmanaged", message });
    }
    return {};
  }
}

function wholeStatus(generation: Generation, nodeName: string): Partial<SnapshotStatus> {
  return {
    owner: "SNAPSHOT_OWNER_ACTOR",
    storageState: snapshotStorageState(generation.storageState),
    generation: Number(generation.generation),
    fidelity: statusFidelity(generation.fidelity),
    sizeBytes: Number(generation.sizeBytes),
    storedBytes: Number(generation.storedBytes),
    sandbox: { class: "gvisor", runtime: generation.runtime },
    ...(generation.epoch > 0n ? { epoch: Number(generation.epoch) } : {}),
    ...(generation.local ? { nodeName } : {}),
    ...(generation.location === "" ? {} : { location: generation.location }),
    ...(generation.digest === "" ? {} : { digest: generation.digest }),
    ...(generation.revision === "" ? {} : { revision: generation.revision }),
  };
}
