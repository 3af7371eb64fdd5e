import type { Head, Manifest } from "./store.ts";

/** Which actor's folder of the store: <cluster uid>/<namespace uid>/<actor uid>. */
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
}

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
   * Stores the files of a generation, then the manifest, then the head (If-Match). Idempotent; a head that already
   * names this manifest is success. Throws SUPERSEDED when the head has a higher epoch, or a higher generation.
   */
  commit(prefix: ActorPrefix, manifest: Omit<Manifest, "files" | "sizeBytes">, dir: string): Promise<CommitResult>;
  manifest(prefix: ActorPrefix, key: string): Promise<Manifest>;
  /** Fetches all files of a manifest into an empty folder, checked by digest. Throws SNAPSHOT_DAMAGED. */
  download(prefix: ActorPrefix, key: string, dir: string): Promise<Manifest>;
  /** Removes one generation's data; never the one that the head names. No error if it is gone. */
  collect(prefix: ActorPrefix, generation: number, epoch: number): Promise<void>;
  /** Removes everything of an actor, the head last. No error if it is gone. */
  deleteActor(prefix: ActorPrefix): Promise<void>;
}
