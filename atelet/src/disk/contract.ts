/** Space on the node's disk that is about to be written; nobody who asked later counts on it before `end`. */
export interface DiskClaim {
  /** What was claimed is written, or will not be. */
  end(): void;
}

export interface ClaimRequest {
  bytes: number;
  /** For messages: "a snapshot of actor ns/a". */
  what: string;
  /** How long copies may be stored and removed for it. */
  withinMs: number;
  /** Images are no snapshots: the quota is not for them. */
  kind: "snapshot" | "image";
  /** What is lost for good if it is not written now: it may use what is kept free, too, and is never refused. */
  urgent?: boolean;
}

/** R24: the space on the disk of the node folder, shared by all that write there. */
export interface DiskRoom {
  /**
   * Makes room, if there is none, by removing what is in the store or can be had again. Throws NO_ROOM if that does not
   * help, also after what only this node has was stored at once.
   */
  claim(request: ClaimRequest): Promise<DiskClaim>;
}
