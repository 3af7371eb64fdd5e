import { type Actor, type Snapshot, type Template } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import {
  type ActorReport,
  ActorState,
  type Generation,
  StorageState,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { parseDurationMs } from "@substrate/lib/resources.ts";
import { type Assignments } from "./assignments.ts";
import { type AteletLink } from "./atelet-link.ts";
import { maxListed, snapshotName, snapshotStorageState } from "./generations.ts";
import { isBehindFloor } from "./ties.ts";

const retryMs = 250;
/** How long the node has for removing older generations from the store before it is asked to let go nevertheless. */
const collectWithinMs = 30_000;

export interface DetachmentOptions {
  assignments: Assignments;
  templates: Reflector<Template>;
  snapshots: Reflector<Snapshot>;
}

/** Long after the newest generation is safe in the store, the node of a sleeping actor lets go. */
export class Detachment {
  readonly #options: DetachmentOptions;

  constructor(options: DetachmentOptions) {
    this.#options = options;
  }

  /** @returns when to look again; undefined when nothing is due by itself */
  async ensure(actor: Actor, link: AteletLink, report: ActorReport): Promise<number | undefined> {
    const { templates } = this.#options;
    const newest = report.generations[0];
    const template = templates.get(actor.metadata.namespace, actor.spec.templateRef.name);
    if (template === undefined || newest === undefined || actor.spec.state === "Running") return undefined;
    if (report.state !== ActorState.ACTOR_STATE_SUSPENDED) return undefined;
    if (newest.storageState !== StorageState.STORAGE_STATE_COMPLETED || isBehindFloor(report)) return undefined;
    const { detachDelay, history } = template.spec.snapshots;
    // otherwise the status would go on showing what the node removes just before it lets go
    const collectMs = report.generations.length > history ? collectWithinMs : 0;
    const dueMs = Number(newest.completedUnixMs) + Math.max(parseDurationMs(detachDelay), collectMs);
    if (dueMs > Date.now()) return dueMs - Date.now();
    // afterwards nobody reports any more: the objects must say all before
    if (!this.#isToldOf(actor, report.generations)) return retryMs;
    await this.#letGo(actor, link);
    return undefined;
  }

  /**
   * Of an actor of which its node knows nothing: asleep and stored when it was last heard of. Its node has let it go, and
   * whoever asked it to could not write that down. Asked again, as what the node then refuses is not to be given up.
   */
  async finish(actor: Actor, link: AteletLink): Promise<void> {
    const { state, snapshots } = actor.status ?? {};
    const isStored = snapshots?.[0]?.storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED";
    if (state !== "ACTOR_STATE_SUSPENDED" || !isStored || actor.spec.state === "Running") return;
    await this.#letGo(actor, link);
  }

  async #letGo(actor: Actor, link: AteletLink): Promise<void> {
    const { assignments } = this.#options;
    try {
      await assignments.release(actor, link, false);
    } catch (error) {
      // it woke meanwhile, or holds more than its report says: the next report brings us back
      if (error instanceof SubstrateError && error.code === "NOT_RELEASABLE") return;
      throw error;
    }
    await assignments.clear(actor);
  }

  /** Whether the status shows just these generations, and the newest one's Snapshot object that it is completed. */
  #isToldOf(actor: Actor, generations: readonly Generation[]): boolean {
    const { name, namespace } = actor.metadata;
    const listed = (actor.status?.snapshots ?? []).map(
      ({ generation, storageState }) => `${generation} ${storageState}`,
    );
    const reported = generations.map(
      ({ generation, storageState }) => `${generation} ${snapshotStorageState(storageState)}`,
    );
    const newest = this.#options.snapshots.get(namespace, snapshotName(name, Number(generations[0]?.generation)));
    return (
      listed.join() === reported.slice(0, maxListed).join() &&
      newest?.status?.storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED"
    );
  }
}
