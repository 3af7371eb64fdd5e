/** Bounds of a bucket's driver; tests make them small. */
export interface S3Limits {
  /** What a part has, going up and coming down; the last one is smaller. At least 5 MiB, by S3's rules. */
  partBytes: number;
  /** Parts under way, in each direction: this times partBytes is all the memory that data takes. */
  parallelParts: number;
  /** Above this an object is copied in parts of this size; at most 5 GiB, by S3's rules. */
  copyBytes: number;
  /** For one try of a small request, and for all of them together. */
  attemptMs: number;
  requestMs: number;
  /** For one try of a part, and for all of them together: 8 MiB in a minute is slower than any link that helps. */
  partAttemptMs: number;
  partMs: number;
  /** A connection that carries nothing for so long is given up. */
  idleMs: number;
  connectMs: number;
}

export const defaultLimits: S3Limits = {
  partBytes: 8 << 20,
  parallelParts: 4,
  copyBytes: 1 << 30,
  attemptMs: 10_000,
  requestMs: 30_000,
  partAttemptMs: 60_000,
  partMs: 180_000,
  idleMs: 20_000,
  connectMs: 5_000,
};

/** S3 takes no more parts of one object. */
const maxParts = 10_000;

/** The size of parts for an object of this size: whole MiB. */
export function partBytesFor(sizeBytes: number, partBytes: number): number {
  const least = Math.ceil(sizeBytes / maxParts / (1 << 20)) * (1 << 20);
  return Math.max(partBytes, least);
}
