export interface StoredObject {
  body: Buffer;
  etag: string;
}

export type PutCondition = { ifMatch: string } | { ifNoneMatch: "*" };

/**
 * A place for objects, S3's semantics in small: keys with slashes, whole-object puts, conditional writes. Throws
 * STORE_UNAVAILABLE for what may heal; a failed condition is a result, not an error. Knows nothing of actors.
 */
export interface ObjectStore {
  get(key: string): Promise<StoredObject | undefined>;
  /** @returns the new etag, or undefined if the condition did not hold. Durable when it resolves. */
  put(key: string, body: Buffer, condition?: PutCondition): Promise<string | undefined>;
  /** Stores a file's bytes. Durable when it resolves. */
  putFile(key: string, path: string): Promise<{ sizeBytes: number; sha256: string }>;
  /** Fetches into a new file; throws SNAPSHOT_DAMAGED if size or digest differ. */
  getFile(key: string, path: string, expected: { sizeBytes: number; sha256: string }): Promise<void>;
  /**
   * Stores bytes that never change: a key gets the same ones at every try. Durable when it resolves.
   *
   * @param bytes transferred away.
   * @param lengthBytes so many from its beginning; absent: all.
   * @returns the same memory, to be used again.
   */
  putBytes(key: string, bytes: ArrayBuffer, lengthBytes?: number): Promise<ArrayBuffer>;
  /**
   * Exactly these bytes of an object; throws SNAPSHOT_DAMAGED if it does not have them.
   *
   * @param into transferred away; absent: new memory of that length.
   * @returns the same memory with the bytes at its beginning.
   */
  getRange(key: string, offset: number, lengthBytes: number, into?: ArrayBuffer): Promise<ArrayBuffer>;
  /**
   * Gives an object a second key, replacing what was there; objects never change in place, so that nothing need be
   * copied. Durable when it resolves. Throws SNAPSHOT_DAMAGED if there is no such object.
   */
  copy(from: string, to: string): Promise<void>;
  /** Keys under a prefix that ends with "/". */
  list(prefix: string): Promise<string[]>;
  /** No error if it does not exist. */
  delete(key: string): Promise<void>;
  /** As delete, for many keys in as few requests as may be, in no order. */
  deleteAll(keys: readonly string[]): Promise<void>;
}

/** <store>/<cluster uid>/<namespace uid>/<actor uid>/head.json: the only object that ever changes in place. */
export interface Head {
  epoch: number;
  generation: number;
  /** Key of the manifest relative to the actor's prefix, e.g. "7-3/manifest.json"; null before the first commit. */
  manifest: string | null;
}

export interface ManifestFile {
  name: string;
  sizeBytes: number;
  sha256: string;
}

/**
 * The pages file of a memory image, in packs. Which page is where, pages.index beside the manifest says, for reading
 * together with the packs alone.
 */
export interface ManifestPages {
  sizeBytes: number;
  /** Of the packs that were new with this generation. */
  storedBytes: number;
  index: { sizeBytes: number; sha256: string };
  /**
   * All packs that the index names. `key` is where a pack was stored first, and its name in every index; `at` is where
   * it is now, if it is a copy. Both are relative to the cluster's prefix.
   */
  packs: { key: string; at?: string | undefined }[];
}

/** <actor prefix>/<generation>-<epoch>/manifest.json */
export interface Manifest {
  /** 3 with pages in packs; without, 2 where there is anything but memory and root file system of fidelity Memory. */
  format: 1 | 2 | 3;
  actor: { uid: string; namespace: string; name: string };
  generation: number;
  epoch: number;
  revision: string;
  imageDigest: string;
  fidelity: "Memory" | "Rootfs" | "Data";
  /** Tells the environment that its program was started with from another; absent: none. Never a value of it. */
  envDigest?: string | undefined;
  /** Each one's content is the file volume-<name>.tar. */
  volumes?: { name: string }[] | undefined;
  /** The root file system of the program began from a tar of changes: a restore must say so again. */
  rootfsTar?: boolean | undefined;
  sandbox: { class: "gvisor"; runtime: string; architecture: string };
  createdAt: string;
  /** Of all files together, and of the pages. */
  sizeBytes: number;
  files: ManifestFile[];
  /** With format 3, where the pages file is none of `files`. */
  pages?: ManifestPages | undefined;
  /** Under the prefix of a tag: the actor's generation that it is a copy of. */
  copyOf?: { actorUid: string; generation: number; epoch: number } | undefined;
}
