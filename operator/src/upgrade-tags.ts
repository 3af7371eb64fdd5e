import { setTimeout as sleep } from "node:timers/promises";
import { type Actor, type Snapshot, snapshots } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { isAlreadyExists, type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Upgrade } from "./plans.ts";

/** On the tags made here: UID of the actor and number of the generation that they keep. */
const upgradeOfLabel = "substrate.run/upgrade-of";
const generationLabel = "substrate.run/generation";

const lookMs = 50;
/** The tag of a large actor goes on while callers are told to come again. */
const laterMs = 5_000;

/** Before an actor takes another revision its state is kept as tag pre-<revision>: the way back. */
export class UpgradeTags {
  readonly #client: Pick<KubeClient, "create" | "get">;
  readonly #snapshots: Pick<Reflector<Snapshot>, "get">;

  constructor(client: Pick<KubeClient, "create" | "get">, known: Pick<Reflector<Snapshot>, "get">) {
    this.#client = client;
    this.#snapshots = known;
  }

  /**
   * Resolves when the tag is in the store; one that an earlier try has made is used again. The object is all that is
   * remembered of an upgrade that was begun.
   * @param untilMs monotonic clock
   * Throws NOT_READY when it takes longer, CHECKPOINT_FAILED when it cannot be made.
   */
  async ensure(actor: Actor, upgrade: Upgrade, untilMs: number): Promise<string> {
    const name = await this.#object(actor, upgrade);
    const about = `Actor ${keyOf(actor)}: tag ${name}, which keeps its state of revision ${upgrade.from},`;
    for (;;) {
      const snapshot = this.#snapshots.get(actor.metadata.namespace, name);
      const why = snapshot?.status?.conditions?.find(({ type }) => type === "Ready")?.message;
      const because = why === undefined ? "" : `: ${why}`;
      switch (snapshot?.status?.storageState) {
        case "SNAPSHOT_STORAGE_STATE_COMPLETED":
          return name;
        case "SNAPSHOT_STORAGE_STATE_FAILED":
        case "SNAPSHOT_STORAGE_STATE_LOST": {
          const advice = "delete that Snapshot to let it be tried again, or set the Template's upgrade to Manual";
          throw new SubstrateError("CHECKPOINT_FAILED", `${about} could not be made${because}; ${advice}`);
        }
        case "SNAPSHOT_STORAGE_STATE_PENDING":
        case undefined:
          break;
      }
      if (performance.now() >= untilMs) {
        const message = `${about} is not in the store yet${because}; the upgrade goes on when it is`;
        throw new SubstrateError("NOT_READY", message, { retryAfterMs: laterMs });
      }
      await sleep(lookMs);
    }
  }

  /** A name may be taken: by an earlier upgrade from the same revision, an earlier actor of this name, or a person. */
  async #object(actor: Actor, { from, generation }: Upgrade): Promise<string> {
    const { name: actorName, uid = "" } = actor.metadata;
    const short = `${actorName}-pre-${from}`;
    for (const name of [short, `${short}-${uid.slice(0, 8)}-${generation}`]) {
      const snapshot = await this.#create(actor, name, from, generation);
      const labels = snapshot?.metadata.labels ?? {};
      if (snapshot !== undefined && labels[upgradeOfLabel] === uid && labels[generationLabel] === String(generation)) {
        return name;
      }
    }
    const message = `Actor ${keyOf(actor)}: Snapshots ${short}… are not the tag of generation ${generation}: delete them to let it upgrade`;
    throw new SubstrateError("CHECKPOINT_FAILED", message);
  }

  /** The object of this name, made now unless there is one. */
  async #create(actor: Actor, name: string, from: string, generation: number): Promise<Snapshot | undefined> {
    const { name: actorName, namespace = "", uid = "" } = actor.metadata;
    const known = await this.#client.get(snapshots, name, namespace);
    if (known !== undefined) return known;
    try {
      return await this.#client.create(snapshots, {
        metadata: { name, namespace, labels: { [upgradeOfLabel]: uid, [generationLabel]: String(generation) } },
        spec: { actorRef: { name: actorName }, tag: `pre-${from}` },
      });
    } catch (error) {
      if (isAlreadyExists(error)) return this.#client.get(snapshots, name, namespace);
      throw error;
    }
  }
}
