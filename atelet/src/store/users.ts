import { objectKey, ownerOfPack, tombstoneKey, usersFolder } from "./layout.ts";
import { manifestsAmong, packPlaces } from "./manifests.ts";
import { Heads } from "./heads.ts";
import { parseUser } from "./documents.ts";
import { type ActorPrefix } from "./snapshots.ts";
import { type Manifest, type ObjectStore } from "./store.ts";

/** No upload takes longer: while a mark is younger, its upload may be under way. Only saves that its work is in vain. */
const defaultGraceMs = 24 * 3_600_000;

/**
 * Which actors use packs that lie under the prefix of a Snapshot object. An upload marks its use before it looks for a
 * tombstone, and looks whether its mark is still there after its manifest is; a deletion writes the tombstone before
 * it looks for marks, and looks for manifests once more after it has removed a mark. So one always sees the other, as
 * stores are strongly consistent (ADR 0031).
 */
export class PackUsers {
  readonly #store: ObjectStore;
  readonly #heads: Heads;
  readonly #graceMs: number;

  constructor(store: ObjectStore, graceMs = defaultGraceMs) {
    this.#store = store;
    this.#graceMs = graceMs;
    this.#heads = new Heads(store);
  }

  /** @returns whether packs of the owner may be named, if its manifest is still there when it is read after this. */
  async mark(owner: ActorPrefix, user: ActorPrefix): Promise<boolean> {
    await this.#putMark(owner, user);
    return !(await this.isDoomed(owner));
  }

  async isDoomed(owner: ActorPrefix): Promise<boolean> {
    return (await this.#store.get(tombstoneKey(owner))) !== undefined;
  }

  /** Of a manifest that has just been written: whether nobody took its packs for unused before. */
  async areKept(user: ActorPrefix, manifest: Pick<Manifest, "pages">): Promise<boolean> {
    for (const owner of foreignOwners(user, [manifest])) {
      if ((await this.#store.get(markKey(owner, user))) === undefined) return false;
    }
    return true;
  }

  /** Its user's data is about to be removed. */
  async unmark(owner: ActorPrefix, user: ActorPrefix): Promise<void> {
    await this.#store.delete(markKey(owner, user));
  }

  /** Whether anybody uses packs of an owner whose tombstone is written. Marks of those who don't are removed. */
  async areUsed(owner: ActorPrefix): Promise<boolean> {
    let used = false;
    for (const key of await this.#store.list(usersFolder(owner))) {
      const object = await this.#store.get(key);
      if (object === undefined) continue;
      const { user, sinceMs } = parseUser(key, object.body);
      if (await this.#isUser(owner, { clusterUid: owner.clusterUid, ...user }, sinceMs)) used = true;
    }
    return used;
  }

  async #isUser(owner: ActorPrefix, user: ActorPrefix, sinceMs: number): Promise<boolean> {
    const uses = await this.#uses(owner, user);
    if (uses === "yes" || (uses === "no" && Date.now() - sinceMs < this.#graceMs)) return true;
    await this.unmark(owner, user);
    if ((await this.#uses(owner, user)) !== "yes") return false;
    await this.#putMark(owner, user);
    return true;
  }

  /**
   * Whether a manifest of the user names packs of the owner. A listing may miss a manifest that came while another one
   * went, which changes the head: then it is taken for used until the next look.
   */
  async #uses(owner: ActorPrefix, user: ActorPrefix): Promise<"yes" | "no" | "gone"> {
    const before = await this.#heads.read(user);
    const keys = await this.#store.list(objectKey(user, ""));
    if (keys.length === 0) return "gone";
    const manifests = await manifestsAmong(this.#store, user, keys);
    if (foreignOwners(user, manifests).some(({ actorUid }) => actorUid === owner.actorUid)) return "yes";
    const after = await this.#heads.read(user);
    return before?.manifest === after?.manifest ? "no" : "yes";
  }

  async #putMark(owner: ActorPrefix, user: ActorPrefix): Promise<void> {
    const { namespaceUid, actorUid } = user;
    const mark = { user: { namespaceUid, actorUid }, sinceMs: Date.now() };
    await this.#store.put(markKey(owner, user), Buffer.from(JSON.stringify(mark)));
  }
}

/** Under whose prefixes, besides the user's own, packs lie that these manifests name. */
export function foreignOwners(user: ActorPrefix, manifests: readonly Pick<Manifest, "pages">[]): ActorPrefix[] {
  const owners = new Map<string, ActorPrefix>();
  for (const place of manifests.flatMap(packPlaces)) {
    const owner = ownerOfPack(user, place);
    if (owner.actorUid !== user.actorUid) owners.set(owner.actorUid, owner);
  }
  return [...owners.values()];
}

function markKey(owner: ActorPrefix, { actorUid }: ActorPrefix): string {
  return `${usersFolder(owner)}${actorUid}`;
}
