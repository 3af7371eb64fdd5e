import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { type Logger } from "@substrate/lib/log.ts";
import { z } from "zod";
import { readJson, removeHalfWritten, writeJson } from "../node-files.ts";
import { type ActorPrefix, type SnapshotStore } from "../store/snapshots.ts";
import { StoreSweep } from "./store-sweep.ts";

const tombstoneSchema = z.object({
  format: z.literal(1),
  prefix: z.object({ clusterUid: z.string(), namespaceUid: z.string(), actorUid: z.string() }),
  /** Of messages: "actor default/counter". */
  title: z.string(),
  /** Names of the stores that may still have something. */
  stores: z.array(z.string()),
  sinceMs: z.number(),
});
type TombstoneRecord = z.infer<typeof tombstoneSchema>;

export interface TombstonesOptions {
  dir: string;
  /** Throws INVALID for a name that is not configured. */
  store: (name: string) => SnapshotStore;
  /** Told whenever the number of records changes. */
  waiting: (count: number) => void;
  log: Logger;
  signal: AbortSignal;
}

export interface Burial {
  prefix: ActorPrefix;
  title: string;
  /** Every store that may have something of it. */
  stores: readonly string[];
  /** Resolves when nothing on this node writes under the prefix any more; nothing is removed before. */
  after?: Promise<unknown> | undefined;
}

/**
 * What is to be removed from stores: recorded before anybody is told that it is deleted, removed when the stores
 * answer, tried until they do. So no deletion waits for a store, and none is forgotten.
 */
export class Tombstones {
  readonly #options: TombstonesOptions;
  readonly #records = new Map<string, TombstoneRecord>();
  readonly #sweeps = new Map<string, StoreSweep>();
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: TombstonesOptions) {
    this.#options = options;
  }

  /** Takes up what an earlier atelet left. Throws, naming the file, for one that cannot be read. */
  async load(): Promise<void> {
    const { dir } = this.#options;
    await mkdir(dir, { recursive: true, mode: 0o700 });
    await removeHalfWritten(dir);
    for (const name of await readdir(dir)) {
      if (!name.endsWith(".json")) continue;
      const path = join(dir, name);
      const parsed = tombstoneSchema.safeParse(await readJson(path));
      // Without it data would stay in the store for ever, and nobody would know: a person must look.
      if (!parsed.success) throw new Error(`${path} is damaged: ${parsed.error.message}`);
      this.#begin(parsed.data, Promise.resolve());
    }
  }

  has(uid: string): boolean {
    return this.#records.has(uid);
  }

  /** Durable when it resolves; the removal follows by itself. Idempotent. */
  async add({ prefix, title, stores, after = Promise.resolve() }: Burial): Promise<void> {
    // At once, so that no rejection is ever without a handler.
    const ended = after.then(
      () => undefined,
      () => undefined,
    );
    const record: TombstoneRecord = { format: 1, prefix, title, stores: [...stores], sinceMs: Date.now() };
    await this.#inTurn(async () => {
      await writeJson(this.#path(prefix.actorUid), record, { durable: true });
      this.#begin(record, ended);
    });
  }

  #begin(record: TombstoneRecord, ended: Promise<void>): void {
    this.#records.set(record.prefix.actorUid, record);
    this.#options.waiting(this.#records.size);
    for (const store of record.stores) {
      this.#sweep(store).add({ prefix: record.prefix, title: record.title, ended });
    }
  }

  #sweep(store: string): StoreSweep {
    let sweep = this.#sweeps.get(store);
    if (sweep === undefined) {
      const { log, signal } = this.#options;
      sweep = new StoreSweep({
        name: store,
        remove: (prefix) => this.#options.store(store).deletePrefix(prefix),
        removed: (prefix) => this.#inTurn(() => this.#removed(prefix, store)),
        log,
        signal,
      });
      this.#sweeps.set(store, sweep);
    }
    return sweep;
  }

  async #removed({ actorUid }: ActorPrefix, store: string): Promise<void> {
    const record = this.#records.get(actorUid);
    if (record === undefined) return;
    record.stores = record.stores.filter((name) => name !== store);
    if (record.stores.length > 0) {
      // Lost in a power cut, it is only done again.
      await writeJson(this.#path(actorUid), record, { durable: false });
      return;
    }
    await rm(this.#path(actorUid), { force: true });
    this.#records.delete(actorUid);
    this.#options.waiting(this.#records.size);
  }

  /** Changes of records follow each other: stores that end at the same time would write the same file. */
  #inTurn(change: () => Promise<void>): Promise<void> {
    const turn = this.#turn.then(change);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  #path(uid: string): string {
    return join(this.#options.dir, `${uid}.json`);
  }
}
