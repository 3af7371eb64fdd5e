/** Of every table, index and pack; the kernel's page of x86-64. */
export const PAGE_BYTES = 4096;

/**
 * An image's pages file on the node with what describes it: `table` has a hash of each page (made after a suspend or
 * by an unpack), `index` says where each page is stored (made by a pack, or fetched for an unpack). Absolute paths.
 */
export interface LocalPages {
  file: string;
  table: string;
  index: string;
}

/**
 * What a new generation may do with a pack that an earlier one names:
 * `own`: share it, and write its pages anew once less than half of them live;
 * `foreign`: share it whatever of it lives (it belongs to a Snapshot, and stays anyway);
 * `none`: not share it (a tombstone was seen, or the pack is gone).
 */
export type PackUse = "own" | "foreign" | "none";

export interface PackRequest {
  /** The image; its table is made if it is missing or damaged. */
  file: string;
  table: string;
  /** The generation to share pages with; what is damaged or missing of it means that nothing is shared. */
  base?: Pick<LocalPages, "table" | "index">;
  /** Asked once for each pack of the base. */
  use?: (packKey: string) => PackUse | Promise<PackUse>;
  /**
   * A new pack's key is this, its number from 0, and a digest of its content, so that an upload that is done again with
   * another base never gives a key another content: `<namespace uid>/<owner uid>/packs/<generation>-<epoch>-` gives
   * `…/<generation>-<epoch>-0-0123456789abcdef`.
   */
  keyPrefix: string;
  /**
   * Stores one new pack, the first `lengthBytes` of a buffer of 16 MiB; at most 2 at once. The buffer is the callee's to
   * transfer until it resolves with it. The same image and base give the same packs. One under way when the call fails is
   * left alone.
   */
  put: (packKey: string, bytes: ArrayBuffer, lengthBytes: number) => Promise<ArrayBuffer>;
}

export interface Packed {
  /** To be stored as the generation's `pages.index`, and kept beside its table. */
  index: Uint8Array<ArrayBuffer>;
  sizeBytes: number;
  /** Keys of all packs that the index names, new ones last. */
  packs: string[];
  /** Of the image's, those that no pack had. */
  newPages: number;
  /** Of all new packs together, as stored. */
  storedBytes: number;
  /** Why the base was not used though given. */
  baseDamage: string | undefined;
}

export interface UnpackRequest {
  /** Bytes of the generation's `pages.index`, as stored; kept by the caller. */
  index: Uint8Array;
  /** What the index is called in messages: its key. */
  indexName: string;
  /** Written anew; must not exist. Removed when it fails. */
  file: string;
  /** Written on the way; an old one is replaced. */
  table: string;
  /** Other images on this node. Pages with equal (pack, page) are copied, each checked against its image's table. */
  reuse: readonly LocalPages[];
  /** Whether memory was lent for all of the image. If not, it is written at the disk's speed (R7). */
  lent?: boolean;
  /**
   * Exactly `length` bytes of a stored pack, to the beginning of a buffer, which is the callee's to transfer until it
   * resolves with it; at most 12 at once, 40 MiB together.
   */
  get: (packKey: string, offset: number, length: number, into: ArrayBuffer) => Promise<ArrayBuffer>;
}

export interface Unpacked {
  sizeBytes: number;
  fetchedBytes: number;
  fetchedPages: number;
  reusedPages: number;
  zeroPages: number;
  /** What was damaged or missing of the images to reuse: their pages were fetched. */
  reuseDamage: string[];
}

/** A file that is still being written, front to back, while its table is made. */
export interface Growing {
  /** Resolves when the last byte is written; a rejection ends the work with the same error. */
  written: Promise<void>;
}

export interface TableRequest {
  file: string;
  table: string;
  growing?: Growing;
  /** Asked before each 16 MiB: the work, for which nobody waits, goes on when it resolves. */
  calm?: () => Promise<void>;
}

/**
 * The engine of page tables, packs and indexes: it knows no actors and no stores. All work is on threads of its own; a
 * transfer holds at most 64 MiB of an image of up to 8 GiB (beyond that 12 bytes more a page).
 *
 * All methods throw what `signal` was aborted with, what their callbacks threw, a SubstrateError SNAPSHOT_DAMAGED that
 * names the file or pack whose bytes are wrong or that changed while it was read, or INTERNAL whose cause is the error
 * of the operating system, with its `code` (ENOSPC …). What a failed call was writing is removed.
 */
export interface Pages {
  /** Makes the table of an image; an old one is replaced in one step. */
  table(request: TableRequest, signal?: AbortSignal): Promise<void>;

  /** What is wrong with an image: other size or other pages than its table has; undefined if nothing is. */
  verify(request: { file: string; table: string }, signal?: AbortSignal): Promise<string | undefined>;

  /** Stores the pages of an image that its base doesn't have. */
  pack(request: PackRequest, signal?: AbortSignal): Promise<Packed>;

  /** Writes an image and its table from packs and from what is on the node. */
  unpack(request: UnpackRequest, signal?: AbortSignal): Promise<Unpacked>;

  /** Ends the threads; what is under way fails with SHUTTING_DOWN. */
  close(): Promise<void>;
}
