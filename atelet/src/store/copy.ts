/** One file to copy with its digest taken on the way. Sync calls on a worker thread: the event loop never waits. */
export interface CopyRequest {
  kind: "copy";
  from: string;
  to: string;
  /**
   * Writes out while copying, so that never more than two chunks are dirty, fsyncs at the end and drops the pages of
   * the copy. Without it the copy stays in the page cache, as a restore wants it.
   */
  durable: boolean;
}

/** A new file with the first bytes of a memory, durable as a copy is. */
export interface WriteRequest {
  kind: "write";
  to: string;
  memory: ArrayBuffer;
  lengthBytes: number;
}

/** A part of a file, to the beginning of a memory; shorter if the file is. */
export interface ReadRequest {
  kind: "read";
  from: string;
  offset: number;
  lengthBytes: number;
  memory: ArrayBuffer;
}

/** The digest of a file. */
export interface DigestRequest {
  kind: "digest";
  from: string;
}

export type FileRequest = CopyRequest | WriteRequest | ReadRequest | DigestRequest;

export interface Copied {
  sizeBytes: number;
  sha256: string;
}

/** What was written or read. The memory goes to and fro by transfer. */
export interface Moved {
  memory: ArrayBuffer;
  bytes: number;
}

export type FileAnswer =
  | { done: Copied | Moved }
  /** Which of the two files the failed call was about. */
  | { failed: { side: "from" | "to"; code: string; message: string } };
