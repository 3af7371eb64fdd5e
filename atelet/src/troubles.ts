/** What a person should hear of this node: its operator makes Events of it (operator/src/reasons.ts). */
export class Troubles {
  readonly #byReason = new Map<string, { message: string; count: bigint }>();

  /** It happened once more; the newest message stands for all of a reason. */
  note(reason: "SnapshotNotOnDisk" | "DiskTight", message: string): void {
    const count = (this.#byReason.get(reason)?.count ?? 0n) + 1n;
    this.#byReason.set(reason, { message, count });
  }

  list(): { reason: string; message: string; count: bigint }[] {
    return [...this.#byReason].map(([reason, { message, count }]) => ({ reason, message, count }));
  }
}
