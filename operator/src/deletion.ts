import { type Actor } from "@substrate/crds/index.ts";
import { isNotFound, keyOf } from "@substrate/lib/kube/client.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type Trouble } from "./conditions.ts";
import { actorFinalizer, type Assignments } from "./assignments.ts";
import { type AteletLink } from "./atelet-link.ts";
import { type Atelets } from "./atelets.ts";
import { type EventRecorder } from "./events.ts";
import { troubleOf } from "./hold.ts";

export interface DeletionOptions {
  assignments: Assignments;
  atelets: Atelets;
  events: EventRecorder;
  log: Logger;
}

export interface DeletionResult {
  /** What stands in the way, for the status. */
  blocked?: Trouble;
  /** Undefined when the actor was let go. */
  requeueAfterMs?: number;
}

/** How soon a node that doesn't answer, or isn't done, is asked again. */
const blockedRetryMs = 5_000;
const reconnectRetryMs = 250;
const advice = 'bring its atelet back, or set annotation substrate.run/abandon: "true" to let go without cleaning up';

/** The end of an Actor: its node, or for a detached one any node, removes all there is; only then the object goes. */
export class Deletion {
  readonly #options: DeletionOptions;

  constructor(options: DeletionOptions) {
    this.#options = options;
  }

  /** Needs only what is in the object. Throws KubeError when the finalizer cannot be taken off. */
  async run(actor: Actor): Promise<DeletionResult> {
    const { assignments, atelets, events } = this.#options;
    if (!(actor.metadata.finalizers ?? []).includes(actorFinalizer)) return {};
    const assignment = actor.status?.assignment;
    if (actor.metadata.annotations?.["substrate.run/abandon"] === "true") {
      const message = "Let go without removing its files and stored data, as its annotation substrate.run/abandon asks";
      events.record(actor, { type: "Warning", reason: "Abandoned", message });
    } else if (assignment !== undefined) {
      // an atelet that was just restarted, or not yet heard of after our own start, is no news
      const silentMs = assignment.nodeName === undefined ? 0 : atelets.view(assignment.nodeName).unreachableMs;
      if (silentMs > 0 && silentMs < blockedRetryMs) return { requeueAfterMs: reconnectRetryMs };
      const link = assignment.nodeName === undefined ? atelets.anyReachable() : atelets.get(assignment.nodeName);
      const blocked = await this.#release(actor, link, assignment.nodeName);
      if (blocked !== undefined) return { blocked, requeueAfterMs: blockedRetryMs };
    }
    try {
      // conditional on what was released: a grant that we haven't seen yet makes it fail, and the next run sees it
      await assignments.removeFinalizer(actor);
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
    return {};
  }

  /** What stands in the way, or undefined when nothing is left of the actor. */
  async #release(
    actor: Actor,
    link: AteletLink | undefined,
    nodeName: string | undefined,
  ): Promise<Trouble | undefined> {
    const blocked = (message: string): Trouble => ({ reason: "DeletionBlocked", message });
    if (link?.view().synced !== true) {
      const absence = nodeName === undefined ? undefined : this.#options.atelets.absence(nodeName);
      return blocked(`Waits for ${absence ?? "any node, and none answers"}: ${advice}`);
    }
    try {
      const { done, message } = await this.#options.assignments.release(actor, link, true);
      return done ? undefined : blocked(`Node ${link.lease.nodeName}: ${message}`);
    } catch (error) {
      this.#options.log.warn("deletion is blocked", { actor: keyOf(actor), error });
      return blocked(`${troubleOf(error).message}; ${advice}`);
    }
  }
}
