/** Long enough for the first answers to be out: asking how the load goes costs a process start, on cores they need. */
const LOOK_AFTER_MS = 200;

/** The load of a restored sandbox's memory, which goes on while the program already answers. */
export class BackgroundLoad {
  /** How it ended; rejects if it failed. */
  readonly ended: Promise<void>;
  readonly #look = Promise.withResolvers<undefined>();

  /** @param wait resolves when the load has ended; called once, a little later. */
  constructor(wait: () => Promise<void>) {
    const timer = setTimeout(() => {
      this.#look.resolve(undefined);
    }, LOOK_AFTER_MS);
    this.ended = this.#look.promise.then(() => {
      clearTimeout(timer);
      return wait();
    });
  }

  /** The end, looked for at once: somebody waits. */
  finish(): Promise<void> {
    this.#look.resolve(undefined);
    return this.ended;
  }
}
