import { type Readable } from "node:stream";

/** Passes on what a stream has, one piece at a time, so that a slow reader holds the writer back. */
export class Pump {
  /** Resolves at the stream's end; rejects when the reader takes no more. */
  readonly done: Promise<undefined>;
  #passing = false;
  #lastMs = performance.now();

  constructor(stream: Readable, write: (chunk: Buffer) => Promise<void>) {
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    this.done = promise;
    const end = (): void => {
      resolve(undefined);
    };
    stream.once("end", end).once("close", end);
    stream.on("data", (chunk: Buffer) => {
      stream.pause();
      this.#passing = true;
      write(chunk).then(() => {
        this.#passing = false;
        this.#lastMs = performance.now();
        stream.resume();
      }, reject);
    });
    if (stream.destroyed) end();
    else stream.resume();
  }

  /** How long nothing has come; 0 while a piece waits for the reader. */
  silentMs(): number {
    return this.#passing ? 0 : performance.now() - this.#lastMs;
  }
}
