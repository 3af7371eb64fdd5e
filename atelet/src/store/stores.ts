import { setTimeout as sleep } from "node:timers/promises";
import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type Pages } from "../pages/pages.ts";
import { ObjectSnapshotStore } from "./object-snapshots.ts";
import { claimStore, openStore } from "./open.ts";
import { type StoreSettings } from "./settings.ts";
import {
  type ActorPrefix,
  type Committed,
  type Content,
  type Destination,
  type ManifestFacts,
  type Owner,
  type Removal,
  type SnapshotStore,
  type Stored,
} from "./snapshots.ts";
import { Transfers } from "./transfers.ts";
import { type Head, type Manifest } from "./store.ts";

/** The installer's stores by name; each is opened at its first use, so that one that is down hinders nobody else. */
export class Stores {
  readonly #stores: ReadonlyMap<string, OpenedOnUse>;

  /** @param transfers of all of them. */
  constructor(stores: ReadonlyMap<string, StoreSettings>, pages: Pages, transfers = new Transfers()) {
    this.#stores = new Map([...stores].map(([name, settings]) => [name, new OpenedOnUse(settings, pages, transfers)]));
  }

  names(): string[] {
    return [...this.#stores.keys()];
  }

  /** Why stores could not be opened that have not been opened since. */
  troubles(): { name: string; message: string }[] {
    return [...this.#stores].flatMap(([name, { trouble }]) =>
      trouble === undefined ? [] : { name, message: trouble },
    );
  }

  /**
   * Opens each bucket, again every `everyMs` until it can be, so that one that can't be used is known before the first
   * upload, and no longer than it is so. A folder waits for its first use, as it may be mounted until then.
   */
  async openBuckets(log: Logger, signal: AbortSignal, everyMs = 20_000): Promise<void> {
    const buckets = [...this.#stores].filter(([, store]) => store.kind === "bucket");
    const openings = buckets.map(async ([name, store]) => {
      let said = "";
      while (!signal.aborted) {
        try {
          await store.open();
          if (said !== "") log.info("a store can be used now", { store: name });
          return;
        } catch (error) {
          const { message } = asSubstrateError(error);
          if (message !== said) log.error("a store cannot be used; it is tried again", { store: name, error });
          said = message;
        }
        await sleep(everyMs, undefined, { signal }).catch(() => undefined);
      }
    });
    await Promise.all(openings);
  }

  /** Throws INVALID, naming the configured ones. */
  get(name: string): SnapshotStore {
    const store = this.#stores.get(name);
    if (store !== undefined) return store;
    throw new SubstrateError(
      "INVALID",
      `there is no store "${name}" (spec.snapshots.store of the Template); configured: ${[...this.#stores.keys()].join(", ")}`,
    );
  }
}

/** A store that is opened, and claimed for this cluster, before it is first used; a failure is tried again next time. */
class OpenedOnUse implements SnapshotStore {
  readonly #settings: StoreSettings;
  readonly #pages: Pages;
  readonly #transfers: Transfers;
  /** Why it could not be opened last; undefined when it was. */
  trouble: string | undefined;
  #opened: ReturnType<typeof openStore> | undefined;
  #claimed: Promise<SnapshotStore> | undefined;

  constructor(settings: StoreSettings, pages: Pages, transfers: Transfers) {
    this.#settings = settings;
    this.#transfers = transfers;
    this.#pages = pages;
  }

  get kind(): StoreSettings["kind"] {
    return this.#settings.kind;
  }

  async head(prefix: ActorPrefix): Promise<Head | undefined> {
    return (await this.#open(prefix)).head(prefix);
  }

  async claim(prefix: ActorPrefix, epoch: number): Promise<Head> {
    return (await this.#open(prefix)).claim(prefix, epoch);
  }

  async commit(prefix: ActorPrefix, facts: ManifestFacts, content: Content): Promise<Committed> {
    return (await this.#open(prefix)).commit(prefix, facts, content);
  }

  async manifest(prefix: ActorPrefix, key: string): Promise<Manifest> {
    return (await this.#open(prefix)).manifest(prefix, key);
  }

  async manifests(prefix: ActorPrefix): Promise<Manifest[]> {
    return (await this.#open(prefix)).manifests(prefix);
  }

  async download(prefix: ActorPrefix, key: string, to: Destination): Promise<Manifest> {
    return (await this.#open(prefix)).download(prefix, key, to);
  }

  async collect(prefix: ActorPrefix, generation: number, epoch: number): Promise<void> {
    await (await this.#open(prefix)).collect(prefix, generation, epoch);
  }

  async rewind(prefix: ActorPrefix, epoch: number, key: string): Promise<Head> {
    return (await this.#open(prefix)).rewind(prefix, epoch, key);
  }

  async stored(prefix: ActorPrefix): Promise<Stored | undefined> {
    return (await this.#open(prefix)).stored(prefix);
  }

  async copy(from: { prefix: ActorPrefix; key: string }, to: ActorPrefix, owner: Owner): Promise<Stored> {
    return (await this.#open(to)).copy(from, to, owner);
  }

  async collectPacks(prefix: ActorPrefix, epoch: number): Promise<void> {
    await (await this.#open(prefix)).collectPacks(prefix, epoch);
  }

  async deletePrefix(prefix: ActorPrefix): Promise<Removal> {
    return (await this.#open(prefix)).deletePrefix(prefix);
  }

  /** @returns the store, whoever has claimed it. */
  open(): ReturnType<typeof openStore> {
    this.#opened ??= openStore(this.#settings).then(
      (store) => {
        this.trouble = undefined;
        return store;
      },
      (error: unknown) => {
        this.#opened = undefined;
        this.trouble = asSubstrateError(error).message;
        throw error;
      },
    );
    return this.#opened;
  }

  #open({ clusterUid }: ActorPrefix): Promise<SnapshotStore> {
    this.#claimed ??= this.#openAndClaim(clusterUid).catch((error: unknown) => {
      this.#claimed = undefined;
      throw error;
    });
    return this.#claimed;
  }

  async #openAndClaim(clusterUid: string): Promise<SnapshotStore> {
    const store = await this.open();
    try {
      await claimStore(store, clusterUid, this.#settings.url);
    } catch (error) {
      this.trouble = asSubstrateError(error).message;
      // a folder that was mounted over is another one: what is opened next is what is there then
      this.#opened = undefined;
      await store.close();
      throw error;
    }
    return new ObjectSnapshotStore(store, this.#pages, { transfers: this.#transfers });
  }
}
