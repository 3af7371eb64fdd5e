import { type Actor, actors } from "@substrate/crds/index.ts";
import { isConflict, type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { namespaces } from "@substrate/lib/kube/types.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Leader, type ReleaseResponse } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { type ActorKey } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { LRUCache } from "lru-cache";
import { type AteletLink } from "./atelet-link.ts";
import { type Freshest } from "./freshest.ts";
import { type ActorPlan, planDigest } from "./plans.ts";

export const actorFinalizer = "substrate.run/actor";

/** Recording a grant is one fsync. */
const assignDeadlineMs = 10_000;
/** Actors of which it is known what their node was told. */
const remembered = 16_384;
/** A release may kill a sandbox and remove files and store objects. */
const releaseDeadlineMs = 60_000;

/**
 * Who holds an actor: the only writer of status.assignment, always with the resourceVersion that was read, so that
 * nothing unread is ever overwritten; and the calls to nodes that go with it.
 */
export class Assignments {
  readonly #client: KubeClient;
  readonly #actors: Freshest<Actor>;
  readonly #clusterUid: string;
  readonly #leader: () => Leader;
  readonly #told = new LRUCache<string, string>({ max: remembered });

  /** `leader` throws while this process does not lead: then nothing is written. */
  constructor(client: KubeClient, freshest: Freshest<Actor>, clusterUid: string, leader: () => Leader) {
    this.#client = client;
    this.#actors = freshest;
    this.#clusterUid = clusterUid;
    this.#leader = leader;
  }

  /**
   * Writes the next epoch for this node and session, in the order of design.md §7: before the atelet is called.
   * Throws KubeError (isConflict) when the actor changed since it was read.
   */
  async grant(actor: Actor, node: { nodeName: string; session: string }, highestEpoch: number): Promise<Actor> {
    const epoch = Math.max(actor.status?.assignment?.epoch ?? 0, highestEpoch) + 1;
    return this.#write(actor, { nodeName: node.nodeName, epoch, session: node.session });
  }

  /** After a release: nobody holds the actor, the epoch stays. Gives up silently if somebody wrote another epoch. */
  async clear(actor: Actor): Promise<void> {
    const epoch = actor.status?.assignment?.epoch;
    let current: Actor | undefined = actor;
    while (current !== undefined && current.status?.assignment?.epoch === epoch) {
      try {
        await this.#write(current, { nodeName: null, session: null });
        return;
      } catch (error) {
        if (!isConflict(error)) throw error;
        current = await this.read(actor);
      }
    }
  }

  /** The object as the API server has it now; undefined when it, or this very one, is gone. */
  async read(actor: Actor): Promise<Actor | undefined> {
    const { name, namespace, uid } = actor.metadata;
    const current = await this.#client.get(actors, name, namespace);
    return current?.metadata.uid === uid ? current : undefined;
  }

  /** Our finalizer stands before the first grant: whoever holds an actor hears of its end. */
  async ensureFinalizer(actor: Actor): Promise<Actor> {
    const finalizers = actor.metadata.finalizers ?? [];
    if (finalizers.includes(actorFinalizer)) return actor;
    return this.#writeFinalizers(actor, [...finalizers, actorFinalizer]);
  }

  async removeFinalizer(actor: Actor): Promise<void> {
    await this.#writeFinalizers(
      actor,
      (actor.metadata.finalizers ?? []).filter((name) => name !== actorFinalizer),
    );
  }

  /** Tells the node of the grant that stands in the status. */
  async assign(actor: Actor, link: AteletLink, plan: ActorPlan): Promise<void> {
    const assignment = actor.status?.assignment;
    if (assignment?.session === undefined) {
      throw new SubstrateError("INTERNAL", `Actor ${keyOf(actor)} has no grant to tell node ${link.lease.nodeName} of`);
    }
    await link.call(
      (client) => client.assign.bind(client),
      {
        actor: await this.#key(actor),
        grant: { epoch: BigInt(assignment.epoch), session: assignment.session },
        program: plan.program,
        environment: plan.environment,
        origin: plan.origin,
        upgradePending: plan.upgradePending,
        held: actor.spec.state === "Suspended",
        clusterUid: this.#clusterUid,
      },
      { deadlineMs: assignDeadlineMs },
    );
    this.#told.set(actor.metadata.uid ?? "", planDigest(plan.program, plan.environment?.digest, plan.upgradePending));
  }

  /** Digest of what this process has told the actor's node last. */
  told(uid: string): string | undefined {
    return this.#told.get(uid);
  }

  /** What another process is taken to have told it. */
  assumeTold(uid: string, digest: string): void {
    this.#told.set(uid, digest);
  }

  /** Throws NOT_RELEASABLE while a sandbox or an unsaved generation is there (unless the actor is being deleted). */
  async release(actor: Actor, link: AteletLink, deleting: boolean): Promise<ReleaseResponse> {
    return link.call(
      (client) => client.release.bind(client),
      {
        actor: await this.#key(actor),
        epoch: BigInt(actor.status?.assignment?.epoch ?? 0),
        deleting,
        clusterUid: this.#clusterUid,
      },
      { deadlineMs: releaseDeadlineMs },
    );
  }

  async #key(actor: Actor): Promise<ActorKey> {
    const { name, namespace = "", uid = "" } = actor.metadata;
    const found = await this.#client.get(namespaces, namespace);
    if (found?.metadata.uid === undefined) {
      throw new SubstrateError("UNKNOWN_ACTOR", `Actor ${keyOf(actor)}: namespace ${namespace} does not exist`);
    }
    return { uid, namespace, name, namespaceUid: found.metadata.uid };
  }

  async #write(actor: Actor, assignment: Record<string, string | number | null>): Promise<Actor> {
    this.#leader();
    const { name, namespace, resourceVersion } = actor.metadata;
    const patch = { metadata: { resourceVersion }, status: { assignment } };
    const written = await this.#client.mergePatch(actors, name, namespace, patch, { subresource: "status" });
    this.#actors.remember(written);
    return written;
  }

  async #writeFinalizers(actor: Actor, finalizers: string[]): Promise<Actor> {
    this.#leader();
    const { name, namespace, resourceVersion } = actor.metadata;
    const patch = { metadata: { resourceVersion, finalizers } };
    const written = await this.#client.mergePatch(actors, name, namespace, patch);
    this.#actors.remember(written);
    return written;
  }
}
