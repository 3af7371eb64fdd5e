import { type Actor, type Snapshot, snapshots } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type StartFrom } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { type ActorReport } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { snapshotName } from "./generations.ts";
import { type Origins } from "./origins.ts";
import { isUsable } from "./ties.ts";

/** What an actor is to be started from. */
export type Choice =
  /** Whatever is newest: what requests do. */
  | { kind: "newest" }
  /** Cold, with its volumes, by the Template's newest revision. */
  | { kind: "boot" }
  | { kind: "generation" | "tag"; startFrom: StartFrom; revision: string };

export const newest: Choice = { kind: "newest" };

/** A person's choice as the resume verb takes it: a generation's number, or a tag's name. */
export interface From {
  from?: number | string | undefined;
  boot?: boolean | undefined;
}

/** Finds out whether what a person chose is there. */
export class Choices {
  readonly #client: Pick<KubeClient, "get">;
  readonly #origins: Pick<Origins, "prefix">;
  readonly #report: (actor: Actor) => ActorReport | undefined;

  /** @param report of the node that holds the actor */
  constructor(
    client: Pick<KubeClient, "get">,
    origins: Pick<Origins, "prefix">,
    report: (actor: Actor) => ActorReport | undefined,
  ) {
    this.#client = client;
    this.#origins = origins;
    this.#report = report;
  }

  /** Throws INVALID naming what there is, SNAPSHOT_MISSING, SNAPSHOT_NOT_READY or SNAPSHOT_UNUSABLE. */
  async of(actor: Actor, { from, boot }: From): Promise<Choice> {
    if (boot === true) return { kind: "boot" };
    if (from === undefined) return newest;
    return typeof from === "number" ? this.#generation(actor, from) : this.#tag(actor, from);
  }

  async #generation(actor: Actor, generation: number): Promise<Choice> {
    const report = this.#report(actor);
    const startFrom: StartFrom = { from: { $case: "generation", value: BigInt(generation) } };
    const local = report?.generations.find((one) => Number(one.generation) === generation);
    if (local !== undefined && isUsable(local)) return { kind: "generation", startFrom, revision: local.revision };
    const { name, namespace, uid } = actor.metadata;
    const snapshot = await this.#client.get(snapshots, snapshotName(name, generation), namespace);
    const { actorUid = uid, revision, storageState } = snapshot?.status ?? {};
    const isStored = storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED" && snapshot?.spec.generation === generation;
    if (isStored && actorUid === uid && revision !== undefined) return { kind: "generation", startFrom, revision };
    const usable =
      report?.generations.filter(isUsable).map((one) => String(one.generation)) ??
      actor.status?.snapshots
        ?.filter(({ storageState: state }) => state === "SNAPSHOT_STORAGE_STATE_COMPLETED")
        .map((entry) => String(entry.generation)) ??
      [];
    const there = usable.length === 0 ? "it has none yet" : `there is ${usable.join(", ")}`;
    const why = local?.message === undefined || local.message === "" ? "" : ` (${local.message})`;
    throw new SubstrateError(
      "INVALID",
      `Actor ${keyOf(actor)} has no generation ${generation} to start from${why}: ${there}`,
    );
  }

  async #tag(actor: Actor, name: string): Promise<Choice> {
    const { namespace = "" } = actor.metadata;
    const about = `Actor ${keyOf(actor)}: Snapshot ${namespace}/${name}`;
    const snapshot = await this.#client.get(snapshots, name, namespace);
    const usable = usableTag(about, actor, snapshot);
    const prefix = await this.#origins.prefix(usable.snapshot, usable.store);
    return { kind: "tag", startFrom: { from: { $case: "tag", value: prefix } }, revision: usable.revision };
  }
}

function usableTag(
  about: string,
  actor: Actor,
  snapshot: Snapshot | undefined,
): { snapshot: Snapshot; store: string; revision: string } {
  if (snapshot?.metadata.deletionTimestamp !== undefined || snapshot === undefined) {
    const advice = "kubectl get snapshots shows those that are there";
    throw new SubstrateError("SNAPSHOT_MISSING", `${about} does not exist, or is being deleted: ${advice}`);
  }
  const { spec, status } = snapshot;
  if (spec.tag === undefined) {
    const advice =
      spec.generation !== undefined && spec.actorRef?.name === actor.metadata.name
        ? `is no tag but generation ${spec.generation}: give that number`
        : "is no tag (a Snapshot with spec.tag): only a tag, or a generation of the actor itself, can be started from";
    throw new SubstrateError("SNAPSHOT_UNUSABLE", `${about} ${advice}`);
  }
  const why = status?.conditions?.find(({ type }) => type === "Ready")?.message;
  const because = why === undefined ? "" : `: ${why}`;
  if (
    status?.storageState === "SNAPSHOT_STORAGE_STATE_FAILED" ||
    status?.storageState === "SNAPSHOT_STORAGE_STATE_LOST"
  ) {
    throw new SubstrateError("SNAPSHOT_UNUSABLE", `${about} could not be made${because}`);
  }
  if (status?.storageState !== "SNAPSHOT_STORAGE_STATE_COMPLETED") {
    throw new SubstrateError("SNAPSHOT_NOT_READY", `${about} is not completed yet${because}`, { retryAfterMs: 5_000 });
  }
  const template = actor.spec.templateRef.name;
  if (status.templateName !== template) {
    const whose = `is of Template ${status.templateName ?? "(unknown)"}, the actor's is ${template}`;
    throw new SubstrateError("SNAPSHOT_UNUSABLE", `${about} ${whose}: fork it into an Actor of that Template instead`);
  }
  const { revision, store } = status;
  if (revision === undefined || store === undefined) {
    throw new SubstrateError(
      "SNAPSHOT_UNUSABLE",
      `${about} says neither its store nor its revision: tag the state anew`,
    );
  }
  return { snapshot, store, revision };
}
