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

/** A new file with these bytes, durable as a copy is. The buffer is transferred. */
export interface WriteRequest {
  kind: "write";
  to: string;
  bytes: ArrayBuffer;
}

/** A part of a file; the answer is shorter if the file is. */
export interface ReadRequest {
  kind: "read";
  from: string;
  offset: number;
  lengthBytes: number;
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

export type FileAnswer =
  | { done: Copied | ArrayBuffer | undefined }
  /** Which of the two files the failed call was about. */
  | { failed: { side: "from" | "to"; code: string; message: string } };
