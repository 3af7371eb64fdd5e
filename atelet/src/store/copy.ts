/** One file to copy with its digest taken on the way. Sync calls on a worker thread: the event loop never waits. */
export interface CopyRequest {
  from: string;
  to: string;
  /**
   * Writes out while copying, so that never more than two chunks are dirty, fsyncs at the end and drops the pages of
   * the copy. Without it the copy stays in the page cache, as a restore wants it.
   */
  durable: boolean;
}

export interface Copied {
  sizeBytes: number;
  sha256: string;
}

export type CopyAnswer =
  | { copied: Copied }
  /** Which of the two files the failed call was about. */
  | { failed: { side: "from" | "to"; code: string; message: string } };
