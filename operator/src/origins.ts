import { type Actor, type Snapshot, snapshots, type Template } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Origin, type StoredPrefix } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { namespaces } from "@substrate/lib/kube/types.ts";
import { type Trouble } from "./conditions.ts";
import { reasonOf } from "./reasons.ts";

/** Where an actor without a generation begins, and the revision of its Template that this state fits. */
export interface ActorOrigin {
  origin: Origin;
  revision: string;
}

/** Whether the actor's state comes, until it has a generation of its own, from a Snapshot that its spec names. */
export function isUnstartedFork(actor: Actor): boolean {
  return actor.spec.source !== undefined && (actor.status?.generation ?? 0) === 0;
}

/**
 * Why a Snapshot cannot be an actor's source, for a person.
 * Codes: SNAPSHOT_MISSING, SNAPSHOT_UNUSABLE, and SNAPSHOT_NOT_READY, which passes by itself.
 */
export function sourceProblem(actor: Actor, snapshot: Snapshot | undefined): SubstrateError | undefined {
  const name = actor.spec.source?.snapshotRef.name ?? "";
  const namespace = actor.metadata.namespace ?? "";
  const about = `Actor ${keyOf(actor)}: its source, Snapshot ${namespace}/${name},`;
  const anew = "delete the Actor and create it with another spec.source";
  if (snapshot === undefined) {
    const message = `${about} does not exist: create it, or ${anew}`;
    return new SubstrateError("SNAPSHOT_MISSING", message);
  }
  if (snapshot.metadata.deletionTimestamp !== undefined) {
    const message = `${about} was deleted before the actor's first start: ${anew}`;
    return new SubstrateError("SNAPSHOT_MISSING", message);
  }
  const { spec, status } = snapshot;
  if (spec.tag === undefined) {
    const actorName = spec.actorRef?.name;
    const what =
      actorName === undefined
        ? "is the golden snapshot of a Template, from which new actors start by themselves: leave spec.source out"
        : `is a generation of Actor ${actorName} and goes with its next ones: keep it as a tag (a Snapshot with spec.tag) and name that`;
    return new SubstrateError("SNAPSHOT_UNUSABLE", `${about} ${what}`);
  }
  switch (status?.storageState) {
    case "SNAPSHOT_STORAGE_STATE_COMPLETED":
      break;
    case "SNAPSHOT_STORAGE_STATE_FAILED":
    case "SNAPSHOT_STORAGE_STATE_LOST": {
      const why = status.conditions?.find(({ type }) => type === "Ready")?.message ?? "no reason is known";
      return new SubstrateError("SNAPSHOT_UNUSABLE", `${about} could not be made (${why}): ${anew}`);
    }
    case "SNAPSHOT_STORAGE_STATE_PENDING":
    case undefined: {
      const how = status?.conditions?.find(({ type }) => type === "Ready")?.message;
      const message = `${about} is not completed yet${how === undefined ? "" : `: ${how}`}`;
      return new SubstrateError("SNAPSHOT_NOT_READY", message, { retryAfterMs: 5_000 });
    }
  }
  const template = actor.spec.templateRef.name;
  if (status.templateName !== template) {
    const message = `${about} is of Template ${status.templateName ?? "(unknown)"}, the actor's is ${template}: use an Actor of that Template, or another Snapshot`;
    return new SubstrateError("SNAPSHOT_UNUSABLE", message);
  }
  return undefined;
}

/** The same for the Actor's status. */
export function sourceTrouble(actor: Actor, snapshot: Snapshot | undefined): Trouble | undefined {
  const problem = sourceProblem(actor, snapshot);
  return problem && { reason: reasonOf(problem.code), message: problem.message };
}

/** Finds what actors without a generation begin from. */
export class Origins {
  readonly #client: KubeClient;
  readonly #clusterUid: string;

  constructor(client: KubeClient, clusterUid: string) {
    this.#client = client;
    this.#clusterUid = clusterUid;
  }

  /**
   * Undefined: it has a generation of its own, or starts cold.
   * Throws SNAPSHOT_MISSING, SNAPSHOT_NOT_READY, SNAPSHOT_UNUSABLE for an actor whose spec.source cannot be used.
   */
  async of(actor: Actor, template: Template | undefined): Promise<ActorOrigin | undefined> {
    if ((actor.status?.generation ?? 0) > 0) return undefined;
    return actor.spec.source === undefined ? this.#golden(actor, template) : this.#fork(actor);
  }

  /** Where a Snapshot object's data is in its store. */
  async prefix(snapshot: Snapshot, store: string): Promise<StoredPrefix> {
    const { namespace = "", name, uid = "" } = snapshot.metadata;
    const namespaceUid = (await this.#client.get(namespaces, namespace))?.metadata.uid;
    if (namespaceUid === undefined) {
      throw new SubstrateError("INVALID", `Snapshot ${namespace}/${name}: namespace ${namespace} does not exist`);
    }
    return { namespaceUid, uid, name: `${namespace}/${name}`, store, clusterUid: this.#clusterUid };
  }

  async #fork(actor: Actor): Promise<ActorOrigin> {
    const name = actor.spec.source?.snapshotRef.name ?? "";
    const snapshot = await this.#client.get(snapshots, name, actor.metadata.namespace);
    const problem = sourceProblem(actor, snapshot);
    if (problem !== undefined) throw problem;
    const { store, revision } = snapshot?.status ?? {};
    if (snapshot === undefined || store === undefined || revision === undefined) {
      const message = `Actor ${keyOf(actor)}: its source, Snapshot ${name}, says neither its store nor its revision: tag the state anew`;
      throw new SubstrateError("SNAPSHOT_UNUSABLE", message);
    }
    return { origin: { prefix: await this.prefix(snapshot, store), golden: false }, revision };
  }

  /** An actor's own environment reaches a program only at a cold start. */
  async #golden(actor: Actor, template: Template | undefined): Promise<ActorOrigin | undefined> {
    const name = template?.status?.goldenSnapshot;
    if (name === undefined || (actor.spec.env ?? []).length > 0) return undefined;
    const snapshot = await this.#client.get(snapshots, name, actor.metadata.namespace);
    const { templateRef } = snapshot?.spec ?? {};
    const { storageState, store } = snapshot?.status ?? {};
    const isUsable =
      snapshot?.metadata.deletionTimestamp === undefined &&
      storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED" &&
      templateRef?.name === template?.metadata.name &&
      templateRef?.revision === template?.status?.revision;
    if (snapshot === undefined || templateRef === undefined || store === undefined || !isUsable) return undefined;
    return { origin: { prefix: await this.prefix(snapshot, store), golden: true }, revision: templateRef.revision };
  }
}
