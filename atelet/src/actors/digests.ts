import { stat } from "node:fs/promises";
import { join } from "node:path";
import { type Digest } from "../generations/seal.ts";
import { isMissing } from "../node-files.ts";
import { pagesFile } from "../store/layout.ts";
import { type ActorContext } from "./actor-context.ts";

/**
 * Takes the digests of one actor's generations soon after they were written, off the path of a suspend: a table of the
 * pages, which the upload needs too, and the sha256 of the rest. From then on a damage of the files here is noticed.
 */
export class Digests {
  readonly #context: ActorContext;
  readonly #running = new Map<number, Promise<void>>();
  readonly #ended = new AbortController();

  constructor(context: ActorContext) {
    this.#context = context;
  }

  /** Of a generation that was just written. */
  take(generation: number): void {
    const { generations, log } = this.#context;
    const taken = generations.local(generation)?.seal !== undefined;
    if (taken || this.#running.has(generation) || this.#ended.signal.aborted) return;
    const unpin = generations.pin(generation);
    const work = this.#take(generation)
      .catch((error: unknown) => {
        // Also without them it can be restored, and the upload takes them anew.
        if (!this.#ended.signal.aborted)
          log.warn("the digests of a snapshot could not be taken", { generation, error });
      })
      .finally(async () => {
        this.#running.delete(generation);
        await unpin();
      })
      .catch((error: unknown) => {
        log.warn("files of a replaced snapshot could not be removed yet", { generation, error });
      });
    this.#running.set(generation, work);
  }

  /** Resolves when they were taken, or could not be. */
  async ready(generation: number): Promise<void> {
    this.take(generation);
    await this.#running.get(generation);
  }

  /** Nothing of it runs any more when it resolves. */
  async stop(): Promise<void> {
    this.#ended.abort(new Error("the actor is leaving this node"));
    await Promise.all(this.#running.values());
  }

  async #take(generation: number): Promise<void> {
    const { node, generations } = this.#context;
    await node.digestSlots(async () => {
      const { signal } = this.#ended;
      const stamps = await generations.stamps(generation);
      const digests: Digest[] = [];
      for (const name of stamps.keys()) {
        signal.throwIfAborted();
        const file = join(generations.path(generation), name);
        if (name === pagesFile) {
          const { table } = generations.pageFiles(generation);
          // it may have been made while the image was written
          if (!(await exists(table))) await node.pages.table({ file, table }, signal);
          digests.push({ name });
        } else digests.push({ name, sha256: (await node.fileChecks.digest(file)).sha256 });
      }
      await generations.seal(generation, stamps, digests);
    });
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}
