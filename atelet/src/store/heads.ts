import { setTimeout as delay } from "node:timers/promises";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { parseHead } from "./documents.ts";
import { headKey } from "./layout.ts";
import { type ActorPrefix } from "./snapshots.ts";
import { type Head, type ObjectStore, type PutCondition } from "./store.ts";

/** Others change a head only when an actor moves: losing this many races in a row is a broken store. */
const maxAttempts = 8;

/** The heads of prefixes: all that ever changes in place in a store, with the fencing by epochs of design.md §7. */
export class Heads {
  readonly #store: ObjectStore;

  constructor(store: ObjectStore) {
    this.#store = store;
  }

  async read(prefix: ActorPrefix): Promise<Head | undefined> {
    return (await this.#read(prefix)).head;
  }

  /** Reads, changes and writes the head until nobody came between. `change` throws to refuse. */
  async change(prefix: ActorPrefix, change: (head: Head | undefined) => Head): Promise<Head> {
    for (let attempt = 1; attempt <= maxAttempts; attempt += 1) {
      const { head, condition } = await this.#read(prefix);
      const next = change(head);
      if (next === head) return head;
      if ((await this.#store.put(headKey(prefix), Buffer.from(JSON.stringify(next)), condition)) !== undefined)
        return next;
      await delay(Math.random() * 10 * attempt);
    }
    throw new SubstrateError(
      "STORE_UNAVAILABLE",
      `${headKey(prefix)} changed ${maxAttempts} times while it was written`,
    );
  }

  async #read(prefix: ActorPrefix): Promise<{ head?: Head; condition: PutCondition }> {
    const key = headKey(prefix);
    const object = await this.#store.get(key);
    if (!object) return { condition: { ifNoneMatch: "*" } };
    return { head: parseHead(key, object.body), condition: { ifMatch: object.etag } };
  }
}

export function refuseHigherEpoch(prefix: ActorPrefix, head: Head | undefined, epoch: number): void {
  if (head && head.epoch > epoch) throw superseded(prefix, head, `epoch ${epoch}`);
}

export function superseded(prefix: ActorPrefix, head: Head, what: string): SubstrateError {
  const newest = `epoch ${head.epoch}, generation ${head.generation}`;
  return new SubstrateError(
    "SUPERSEDED",
    `the head of actor ${prefix.actorUid} has ${newest}: ${what} is not the newest`,
  );
}
