import type { Head, Manifest, ManifestFile } from "./store.ts";

/**
 * Which folder of the store: <cluster uid>/<namespace uid>/<actor uid>. A tag or a golden snapshot has one of the same
 * form, under the UID of its Snapshot object, with generation 1 of epoch 1 in it and nothing else.
 */
export interface ActorPrefix {
  clusterUid: string;
  namespaceUid: string;
  actorUid: string;
}

export interface CommitResult {
  location: string;
  /** "sha256:…" of manifest.json. */
  digest: string;
  storedBytes: number;
  files: readonly ManifestFile[];
}

/** What the head of a prefix names. */
export interface Stored extends CommitResult {
  /** The manifest's key relative to the prefix. */
  key: string;
  manifest: Manifest;
}

/** Whose a prefix is: of an actor, or of a Snapshot object. */
export type Owner = Manifest["actor"];

/** An actor's snapshots in a store: head, manifests, data; the fencing rules of design.md §7 and §9. */
export interface SnapshotStore {
  /** Reads the head; undefined if the actor never committed or claimed. */
  head(prefix: ActorPrefix): Promise<Head | undefined>;
  /**
   * Claims the head for an epoch (If-Match) and returns what it names. Idempotent. Throws SUPERSEDED when the head has
   * a higher epoch.
   */
  claim(prefix: ActorPrefix, epoch: number): Promise<Head>;
  /**
   * Stores the files of a generation, all that are in the folders, then the manifest, then the head (If-Match). Idempotent; a head that already
   * names this manifest is success. Throws SUPERSEDED when the head has a higher epoch, or a higher generation.
   */
  commit(
    prefix: ActorPrefix,
    manifest: Omit<Manifest, "files" | "sizeBytes">,
    ...dirs: readonly string[]
  ): Promise<CommitResult>;
  /**
   * Puts the head back to a generation that is still stored, so that nobody restores a newer one any more. Idempotent.
   * Throws SUPERSEDED when the head has a higher epoch, SNAPSHOT_DAMAGED when that generation is not there.
   */
  rewind(prefix: ActorPrefix, epoch: number, key: string): Promise<Head>;
  /** The newest generation with its manifest; undefined if nothing was committed. */
  stored(prefix: ActorPrefix): Promise<Stored | undefined>;
  /**
   * Copies a stored generation under the prefix of a Snapshot object, as its only one. Idempotent: what is there
   * already is success. Throws SNAPSHOT_DAMAGED when the generation is not there.
   */
  copy(from: { prefix: ActorPrefix; key: string }, to: ActorPrefix, owner: Owner): Promise<Stored>;
  manifest(prefix: ActorPrefix, key: string): Promise<Manifest>;
  /** Fetches all files of a manifest into an empty folder, checked by digest. Throws SNAPSHOT_DAMAGED. */
  download(prefix: ActorPrefix, key: string, dir: string): Promise<Manifest>;
  /** Removes one generation's data; never the one that the head names. No error if it is gone. */
  collect(prefix: ActorPrefix, generation: number, epoch: number): Promise<void>;
  /** Removes everything under a prefix, the head last. No error if it is gone. */
  deletePrefix(prefix: ActorPrefix): Promise<void>;
}
