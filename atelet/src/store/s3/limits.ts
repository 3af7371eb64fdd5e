/** Bounds of a bucket's driver; tests make them small. */
export interface S3Limits {
  /** What a part has, going up and coming down; the last one is smaller. At least 5 MiB, by S3's rules. */
  partBytes: number;
  /** Parts under way, in each direction: this times partBytes is all the memory that the data of files takes. */
  parallelParts: number;
  /** Connections for packs, ranges and parts; what needs one more waits. */
  connections: number;
  /** Above this an object is copied in parts of this size; at most 5 GiB, by S3's rules. */
  copyBytes: number;
  /** For one try of a small request, and for all of them together. */
  attemptMs: number;
  requestMs: number;
  /**
   * For an answer once a part was handed over, in one try; and for all tries together. The part itself may take its time
   * while it moves.
   */
  partAttemptMs: number;
  partMs: number;
  /** A connection that carries less than leastBytesPerSecond for so long is given up. */
  idleMs: number;
  /** Its sixteen siblings on a link of 100 KB/s each carry more. */
  leastBytesPerSecond: number;
  connectMs: number;
  /** Before the first repetition of a request; each further pause is three times as long. */
  pauseMs: number;
}

export const defaultLimits: S3Limits = {
  partBytes: 8 << 20,
  parallelParts: 4,
  connections: 32,
  copyBytes: 1 << 30,
  attemptMs: 10_000,
  requestMs: 30_000,
  partAttemptMs: 60_000,
  // 16 MiB, eight at once, through a link of 100 KB/s, and a try in vain before
  partMs: 1_800_000,
  idleMs: 20_000,
  leastBytesPerSecond: 2 << 10,
  connectMs: 5_000,
  pauseMs: 100,
};

/** S3 takes no more parts of one object. */
const maxParts = 10_000;

/** The size of parts for an object of this size: whole MiB. */
export function partBytesFor(sizeBytes: number, partBytes: number): number {
  const least = Math.ceil(sizeBytes / maxParts / (1 << 20)) * (1 << 20);
  return Math.max(partBytes, least);
}
