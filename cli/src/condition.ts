/** What a status says of one aspect of its object. */
export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
}

/** Durable's reasons without trouble: saved, never run, waiting for its turn. All others are a failed upload's. */
const untroubled: ReadonlySet<string> = new Set(["Completed", "NoSnapshot", "Pending"]);

/** Whether Durable tells more than that the newest state waits for its turn. */
export function isFailedUpload({ reason }: Condition): boolean {
  return !untroubled.has(reason);
}
