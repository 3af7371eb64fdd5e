/** So many failed starts in a row from one golden snapshot are no accident. */
const UNFIT_AFTER = 3;
/** Snapshots of Templates that are changed again and again are forgotten, the oldest first. */
const REMEMBERED = 1_000;

/**
 * Golden snapshots whose program does not live on after a restore. Each start from one costs as long as a program may
 * take to be ready, before it begins cold: after some in a row new actors begin cold at once, until the atelet ends.
 */
export class UnfitOrigins {
  readonly #failures = new Map<string, number>();

  has(uid: string): boolean {
    return (this.#failures.get(uid) ?? 0) >= UNFIT_AFTER;
  }

  /** @returns whether it counts as unfit from now on. */
  failed(uid: string): boolean {
    const failures = (this.#failures.get(uid) ?? 0) + 1;
    this.#failures.delete(uid);
    this.#failures.set(uid, failures);
    const [oldest] = this.#failures.keys();
    if (this.#failures.size > REMEMBERED && oldest !== undefined) this.#failures.delete(oldest);
    return failures === UNFIT_AFTER;
  }

  started(uid: string): void {
    this.#failures.delete(uid);
  }
}
