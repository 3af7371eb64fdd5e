import { stat } from "node:fs/promises";
import { join } from "node:path";
import { type Digest } from "../generations/seal.ts";
import { isMissing } from "../node-files.ts";
import { pagesFile } from "../store/layout.ts";
import { type ActorContext } from "./actor-context.ts";
import { Patience } from "./patience.ts";

/** Until then a damage of the files would not be noticed. */
const PATIENCE_MS = 5000;

/**
 * Takes the digests of one actor's generations soon after they were written, off the path of a suspend and of the
 * wake that may follow: a table of the pages, which the upload needs too, and the sha256 of the rest. From then on a
 * damage of the files here is noticed.
 */
export class Digests {
  readonly #context: ActorContext;
  readonly #running = new Map<number, { work: Promise<void>; patience: Patience; given: AbortController }>();
  readonly #ended = new AbortController();

  constructor(context: ActorContext) {
    this.#context = context;
  }

  /** Of a generation that was just written. */
  take(generation: number): void {
    const { generations, log } = this.#context;
    const taken = generations.local(generation)?.seal !== undefined;
    if (taken || this.#running.has(generation) || this.#ended.signal.aborted) return;
    const patience = new Patience(this.#context.node.urgency, PATIENCE_MS);
    const given = new AbortController();
    const signal = AbortSignal.any([this.#ended.signal, given.signal]);
    const work = this.#takePinned(generation, patience, signal)
      .catch((error: unknown) => {
        // Also without them it can be restored, and the upload takes them anew.
        if (!signal.aborted) log.warn("the digests of a snapshot could not be taken", { generation, error });
      })
      .finally(() => {
        this.#running.delete(generation);
      });
    this.#running.set(generation, { work, patience, given });
  }

  /** Its files are to go: nothing reads them any longer than it must. */
  giveUp(generation: number): void {
    const running = this.#running.get(generation);
    running?.given.abort(new Error(`generation ${generation} was replaced`));
    running?.patience.end();
  }

  /** Resolves when they were taken, or could not be. */
  async ready(generation: number): Promise<void> {
    this.take(generation);
    const running = this.#running.get(generation);
    running?.patience.end();
    await running?.work;
  }

  /** Nothing of it runs any more when it resolves. */
  async stop(): Promise<void> {
    this.#ended.abort(new Error("the actor is leaving this node"));
    for (const { patience } of this.#running.values()) patience.end();
    await Promise.all([...this.#running.values()].map(({ work }) => work));
  }

  /** Its files may go as long as they are not being read. */
  async #takePinned(generation: number, patience: Patience, signal: AbortSignal): Promise<void> {
    const { generations, log } = this.#context;
    await patience.calm();
    if (signal.aborted || generations.local(generation) === undefined) return;
    const unpin = generations.pin(generation);
    try {
      await this.#take(generation, patience, signal);
    } finally {
      this.#running.delete(generation);
      await unpin().catch((error: unknown) => {
        log.warn("files of a replaced snapshot could not be removed yet", { generation, error });
      });
    }
  }

  async #take(generation: number, patience: Patience, signal: AbortSignal): Promise<void> {
    const { node, generations } = this.#context;
    await node.digestSlots(async () => {
      signal.throwIfAborted();
      const stamps = await generations.stamps(generation);
      const digests: Digest[] = [];
      for (const name of stamps.keys()) {
        signal.throwIfAborted();
        const file = join(generations.path(generation), name);
        if (name === pagesFile) {
          const { table } = generations.pageFiles(generation);
          // it may have been made while the image was written
          if (!(await exists(table))) await node.pages.table({ file, table, calm: () => patience.calm() }, signal);
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
