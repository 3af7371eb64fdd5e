import { setTimeout as delay } from "node:timers/promises";
import { type Logger } from "@substrate/lib/log.ts";
import { type Pages } from "../pages/pages.ts";

/** What hashing still has to do when an image is written is a fraction of a second, unless the disk stands still. */
const READY_WITHIN_MS = 10_000;

/**
 * The page table of an image, made while the image is being written: the upload of a sync suspend, which somebody waits
 * for, then begins without reading the image first. One that fails is made by `Digests` later.
 */
export class GrowingTable {
  readonly #making: Promise<void>;
  readonly #written = Promise.withResolvers<undefined>();
  readonly #abandoned = new AbortController();

  constructor(pages: Pages, { file, table, log }: { file: string; table: string; log: Logger }) {
    this.#making = pages
      .table({ file, table, growing: { written: this.#written.promise } }, this.#abandoned.signal)
      .catch((error: unknown) => {
        if (!this.#abandoned.signal.aborted) log.warn("an image could not be hashed while it was written", { error });
      });
  }

  /** The image is whole. Resolves when its table is there, or isn't for now. */
  async ready(): Promise<void> {
    this.#written.resolve(undefined);
    await this.#ended();
    this.#abandoned.abort(new Error(`it was not ready ${READY_WITHIN_MS} ms after its image`));
  }

  /** The image is not written after all. */
  async abandon(): Promise<void> {
    this.#abandoned.abort(new Error("its image was not written"));
    await this.#ended();
  }

  async #ended(): Promise<void> {
    const late = new AbortController();
    await Promise.race([
      this.#making,
      delay(READY_WITHIN_MS, undefined, { signal: late.signal }).catch(() => undefined),
    ]);
    late.abort();
  }
}
