import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorPrefix, type Stored } from "../store/snapshots.ts";
import { type NodeActors } from "./node-actors.ts";
import { type NodeContext } from "./node-context.ts";
import { type ActorKey, type StoredPrefix } from "./record.ts";
import { copyStored, nothingToTag } from "./stored-copy.ts";

export interface TagRequest {
  actor: ActorKey;
  /** Under which this node has the actor; 0: nobody has it. */
  epoch: number;
  target: StoredPrefix;
  operationId: string;
}

/** What lies under the prefixes of Snapshot objects: copies of actors' states are made there, and removed. */
export class Tags {
  readonly #node: NodeContext;
  readonly #actors: NodeActors;
  readonly #running = new Map<string, Promise<Stored>>();

  constructor(node: NodeContext, actors: NodeActors) {
    this.#node = node;
    this.#actors = actors;
  }

  /**
   * Copies an actor's state; a running one is saved first. Joins a call for the same Snapshot, and is done when its data
   * is there. Throws INVALID for an actor that has no state, and what a suspend throws.
   */
  tag(request: TagRequest): Promise<Stored> {
    const { target } = request;
    const { actorUid: uid } = target.prefix;
    const existing = this.#running.get(uid);
    if (existing !== undefined) return existing;
    const tag = this.#tag(request).finally(() => this.#running.delete(uid));
    this.#running.set(uid, tag);
    return tag;
  }

  /** Removes what a Snapshot object owned. Durable when it resolves, done when the store answers. */
  async delete({ prefix, name, store }: StoredPrefix): Promise<void> {
    const uid = prefix.actorUid;
    const title = `Snapshot ${name}`;
    await this.#node.tombstones.add({ prefix, title, stores: [store], after: this.#running.get(uid) });
    for (const actor of this.#actors.all()) await actor.forgetTag(uid);
    await this.#node.origins.forget(uid);
  }

  async #tag({ actor: key, epoch, target, operationId }: TagRequest): Promise<Stored> {
    const { prefix, name, store } = target;
    if (this.#node.tombstones.has(prefix.actorUid)) {
      throw new SubstrateError("INVALID", `Snapshot ${name} is being deleted: make one of another name`);
    }
    const actor = epoch > 0 ? this.#actors.withEpoch(key.uid, epoch) : undefined;
    const present = await this.#node
      .store(store)
      .stored(prefix)
      .catch((error: unknown) => {
        // The state that is wanted is that of now: it is saved, and copied when the store is back.
        if (actor === undefined || asSubstrateError(error).code !== "STORE_UNAVAILABLE") throw error;
        return undefined;
      });
    if (present !== undefined) {
      await actor?.forgetTag(prefix.actorUid);
      return present;
    }
    if (actor !== undefined) return actor.tag(target, operationId);
    const from: ActorPrefix = { ...prefix, namespaceUid: key.namespaceUid, actorUid: key.uid };
    const newest = await this.#node.store(store).stored(from);
    if (newest === undefined) throw nothingToTag(`${key.namespace}/${key.name}`);
    return copyStored(this.#node, { store, prefix: from, key: newest.key }, target);
  }
}
