import { type Phases } from "@substrate/lib/phases.ts";
import { type LocalPages } from "../pages/pages.ts";
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
  /** What it added to the store. */
  storedBytes: number;
  files: readonly ManifestFile[];
}

export interface Committed extends CommitResult {
  /** Of its pages, to be kept beside their table: the next generation shares pages with this one through both. */
  index?: Uint8Array | undefined;
}

/** A manifest before its content is known. */
export type ManifestFacts = Omit<Manifest, "files" | "sizeBytes" | "pages">;

/** A stored generation whose page table and index are on this node. */
export interface KnownPages {
  /** Under which it is stored: the actor's own, or that of the Snapshot object that it began from. */
  prefix: ActorPrefix;
  /** Of its manifest, relative to that prefix. */
  key: string;
  table: string;
  index: string;
}

/** What is stored of a generation. */
export interface Content {
  /** Folders with its files, all of them. */
  dirs: readonly string[];
  /** With a memory image. */
  pages?: {
    /** Its page table; made if it is missing. */
    table: string;
    /** With which pages may be shared: that one is taken which the head names, else one of a Snapshot. */
    bases: readonly KnownPages[];
  };
  /** Told how long what took. */
  phases?: Phases;
}

/** Where a download goes. */
export interface Destination {
  /** An empty folder. */
  dir: string;
  /** Files of that name are written for a memory image that is stored in packs. */
  pages: { table: string; index: string; reuse: readonly LocalPages[] };
  /** Whether memory was lent for the image; if not, it is written at the disk's speed. */
  lent?: boolean;
  /**
   * Told what comes, as soon as that is known, so that it can be used on the way. `file` resolves when one of the files
   * is there, and rejects if it can't be had.
   */
  began?: (manifest: Manifest, file: (name: string) => Promise<void>) => void;
}

/** `waiting`: packs of it are still used by others; to be tried again when they may have gone. */
export type Removal = "removed" | "waiting";

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
   * Stores what is new of a generation, then the manifest, then the head (If-Match). Idempotent; a head that already
   * names this manifest is success. Throws SUPERSEDED when the head has a higher epoch, or a higher generation.
   */
  commit(prefix: ActorPrefix, facts: ManifestFacts, content: Content): Promise<Committed>;
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
  /** All that are stored, in no order; also what a replaced upload has left. */
  manifests(prefix: ActorPrefix): Promise<Manifest[]>;
  /** Fetches all files of a manifest, checked by digest. Throws SNAPSHOT_DAMAGED. */
  download(prefix: ActorPrefix, key: string, to: Destination): Promise<Manifest>;
  /** Removes one generation's data; never the one that the head names. No error if it is gone. */
  collect(prefix: ActorPrefix, generation: number, epoch: number): Promise<void>;
  /**
   * Removes the actor's packs that none of its generations names; after a commit, by who holds the epoch, and while
   * nothing of the actor is being stored. Throws SUPERSEDED when the head has a higher epoch.
   */
  collectPacks(prefix: ActorPrefix, epoch: number): Promise<void>;
  /** Removes everything under a prefix but what others use of it, the head last. No error if it is gone. */
  deletePrefix(prefix: ActorPrefix): Promise<Removal>;
}
