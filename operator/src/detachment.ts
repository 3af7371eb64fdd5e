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
/** Clocks of nodes may differ by so much. */
const skewMs = 60_000;

export interface DetachmentOptions {
  assignments: Assignments;
  templates: Reflector<Template>;
  snapshots: Reflector<Snapshot>;
}

/** Long after the newest generation is safe in the store, or when it has to leave, the node of a sleeping actor lets go. */
export class Detachment {
  readonly #options: DetachmentOptions;

  constructor(options: DetachmentOptions) {
    this.#options = options;
  }

  /**
   * @param leaves its node is none for it any more, and another one is open to it
   * @returns when to look again; undefined when nothing is due by itself
   */
  async ensure(actor: Actor, link: AteletLink, report: ActorReport, leaves: boolean): Promise<number | undefined> {
    const { templates } = this.#options;
    if (!isMovable(report)) return undefined;
    const template = templates.get(actor.metadata.namespace, actor.spec.templateRef.name);
    if (template === undefined || actor.spec.state === "Running") return undefined;
    const { detachDelay, history } = template.spec.snapshots;
    const newest = report.generations[0];
    // one without a state costs its node nothing
    if (newest === undefined && !leaves) return undefined;
    // otherwise the status would go on showing what the node removes just before it lets go
    const collectMs = report.generations.length > history ? collectWithinMs : 0;
    const delayMs = Math.max(leaves ? 0 : parseDurationMs(detachDelay), collectMs);
    const storedForMs = Date.now() - Number(newest?.completedUnixMs ?? 0n);
    // what was stored long after now was stored before the clock was put back: nobody knows how long ago
    if (storedForMs > -skewMs && storedForMs < delayMs) return delayMs - storedForMs;
    // afterwards nobody reports any more: the objects must say all before
    if (!this.#isToldOf(actor, report.generations)) return retryMs;
    await this.#letGo(actor, link);
    return undefined;
  }

  /** Whether its node has let it go: only if all that there is of it is in the store, and in the objects. */
  async leave(actor: Actor, link: AteletLink, report: ActorReport): Promise<boolean> {
    if (!isMovable(report) || !this.#isToldOf(actor, report.generations)) return false;
    return this.#letGo(actor, link);
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

  async #letGo(actor: Actor, link: AteletLink): Promise<boolean> {
    const { assignments } = this.#options;
    try {
      await assignments.release(actor, link, false);
    } catch (error) {
      // it woke meanwhile, or holds more than its report says: the next report brings us back
      if (error instanceof SubstrateError && error.code === "NOT_RELEASABLE") return false;
      throw error;
    }
    await assignments.clear(actor);
    return true;
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
    if (listed.join() !== reported.slice(0, maxListed).join()) return false;
    const [newest] = generations;
    if (newest === undefined) return true;
    const snapshot = this.#options.snapshots.get(namespace, snapshotName(name, Number(newest.generation)));
    return snapshot?.status?.storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED";
  }
}

/** It sleeps, and another node could go on from what is in the store, or has nothing to go on from. */
function isMovable(report: ActorReport): boolean {
  if (report.state !== ActorState.ACTOR_STATE_SUSPENDED || isBehindFloor(report)) return false;
  const [newest] = report.generations;
  return newest === undefined || newest.storageState === StorageState.STORAGE_STATE_COMPLETED;
}
