import { rename } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { isMissing, namesIn, readJson, removeFolder, writeJson } from "../node-files.ts";
import { stackSchema, type VolumeStack } from "../volumes/stack.ts";

const SUFFIX = ".unreadable";
const noteName = "aside.json";

const noteSchema = z.object({ epoch: z.number().int().positive(), why: z.string() });
/** What is still to be read of the record of a generation that was set aside. */
const remainsSchema = z.object({ epoch: z.number().int().positive(), volumes: z.array(stackSchema) });

/** A generation of which something is left that cannot be used. */
export interface Aside {
  generation: number;
  /** undefined: nobody can say it any more. */
  epoch: number | undefined;
  why: string;
  /** The layers that hold its volumes' content; undefined: nobody can say which. */
  volumes: VolumeStack[] | undefined;
}

/**
 * What cannot be used of one actor's generations, and may be all that there is of their state: kept under another name,
 * <dir>/<generation>.unreadable/{aside.json, generation.json, image/…}, until a newer generation is in the store.
 */
export class AsideFolder {
  readonly #dir: string;
  readonly #found = new Map<number, Aside>();

  /** @param dir of the generations. */
  constructor(dir: string) {
    this.#dir = dir;
  }

  static isName(name: string): boolean {
    return name.endsWith(SUFFIX);
  }

  /** What earlier atelets have set aside. */
  async load(): Promise<void> {
    this.#found.clear();
    for (const name of await namesIn(this.#dir)) {
      const generation = Number(name.slice(0, -SUFFIX.length));
      if (AsideFolder.isName(name) && generation > 0) this.#found.set(generation, await this.#read(generation));
    }
  }

  all(): Aside[] {
    return [...this.#found.values()];
  }

  has(generation: number): boolean {
    return this.#found.has(generation);
  }

  path(generation: number): string {
    return join(this.#dir, `${generation}${SUFFIX}`);
  }

  /** Whether something of this generation or an older one is kept. */
  hasUpTo(generation: number): boolean {
    return [...this.#found.keys()].some((one) => one <= generation);
  }

  /** Sets aside what is here of a generation: by one rename, so that an end at any moment leaves the one or the other. */
  async put(generation: number, why: string, epoch?: number): Promise<void> {
    const home = join(this.#dir, String(generation));
    const aside = this.path(generation);
    try {
      if (epoch !== undefined) await writeJson(join(home, noteName), { epoch, why }, { durable: false });
    } catch (error) {
      // On a full or broken disk without the note: the state counts, and the actor's record says why.
      if (isMissing(error)) return;
    }
    // of an earlier one of this number another has been stored since
    await removeFolder(aside);
    try {
      await rename(home, aside);
    } catch (error) {
      if (isMissing(error)) return;
      throw error;
    }
    this.#found.set(generation, { ...(await this.#read(generation)), why });
  }

  /** A newer state, or the same, is safe. */
  async removeUpTo(generation: number): Promise<void> {
    for (const one of [...this.#found.keys()].filter((number) => number <= generation)) {
      await removeFolder(this.path(one));
      this.#found.delete(one);
    }
  }

  async #read(generation: number): Promise<Aside> {
    const read = (name: string): Promise<unknown> => readJson(join(this.path(generation), name)).catch(() => undefined);
    const note = noteSchema.safeParse(await read(noteName));
    const remains = remainsSchema.safeParse(await read("generation.json"));
    return {
      generation,
      epoch: remains.data?.epoch ?? note.data?.epoch,
      why: note.data?.why ?? "its generation.json cannot be read",
      volumes: remains.data?.volumes,
    };
  }
}
