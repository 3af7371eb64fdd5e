import { rm } from "node:fs/promises";
import { join } from "node:path";
import { digestsOf } from "../store/manifests.ts";
import { type Destination } from "../store/snapshots.ts";
import { type Manifest } from "../store/store.ts";
import { volumeFile } from "../volumes/actor-volumes.ts";
import { type ActorContext } from "./actor-context.ts";
import { type Generation } from "./record.ts";

type Context = Pick<ActorContext, "volumes" | "generations">;

/** The volumes of a generation that is being fetched: each is unpacked when its archive is here, while memory comes. */
export class Unpacking {
  readonly #context: Context;
  readonly #source: Generation;
  readonly #dir: string;
  readonly #whole = Promise.withResolvers<undefined>();
  #unpacked: Promise<void> = Promise.resolve();

  /** @param dir into which it is fetched. */
  constructor(context: Context, source: Generation, dir: string) {
    this.#context = context;
    this.#source = source;
    this.#dir = dir;
    // whoever unpacks hears of it
    this.#whole.promise.catch(() => undefined);
  }

  /** Commits the generation when all of it is here; on failure nothing is left of its volumes, and nothing under way. */
  async during(download: (began: NonNullable<Destination["began"]>) => Promise<Manifest>): Promise<Manifest> {
    try {
      const manifest = await download((coming, file) => {
        this.#unpacked = this.#unpack(coming, file);
        // waited for below
        this.#unpacked.catch(() => undefined);
      });
      this.#whole.resolve(undefined);
      await this.#unpacked;
      return manifest;
    } catch (error) {
      this.#whole.reject(error);
      await Promise.allSettled([this.#unpacked]);
      throw error;
    }
  }

  #unpack(manifest: Manifest, file: (name: string) => Promise<void>): Promise<void> {
    const { volumes, generations } = this.#context;
    const packed = (manifest.volumes ?? []).map(({ name }) => ({ name, path: join(this.#dir, volumeFile(name)) }));
    const commit: Parameters<typeof volumes.unpack>[1] = async (stacks) => {
      for (const { path } of packed) await rm(path);
      const saved = { rootfsTar: manifest.rootfsTar === true, volumes: stacks };
      await generations.commitFetched(this.#source, saved, digestsOf(manifest));
    };
    return volumes.unpack(packed, commit, {
      here: ({ name }) => file(volumeFile(name)),
      whole: this.#whole.promise,
    });
  }
}
