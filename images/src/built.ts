import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";

export interface BuiltImage {
  name: string;
  /** `substrate/NAME:TAG`, as in the archive. */
  reference: string;
  /** docker-archive, in the cache: `ctr -n k8s.io images import` takes it. */
  archive: string;
  /** Of the archive, whose layers are not compressed. */
  sizeBytes: number;
  /** Of the parts: from exec until all is loaded, in milliseconds. */
  startMs?: number;
}

/** Archives of one image that stay: another checkout's, or another tag's, may be in use. */
const KEPT = 3;

/** Finished images, each in a folder named for its image and all of its inputs. */
export class BuiltImages {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  #folder(name: string, key: string): string {
    return join(this.#dir, `${name}-${key}`);
  }

  async find(name: string, key: string): Promise<BuiltImage | undefined> {
    const folder = this.#folder(name, key);
    const record = join(folder, "image.json");
    if (!existsSync(record)) return undefined;
    const now = new Date();
    await utimes(folder, now, now);
    return JSON.parse(await readFile(record, "utf8")) as BuiltImage;
  }

  /** Keeps what `make` writes to the path that it is given; an interrupted build leaves nothing that counts. */
  async add(
    name: string,
    key: string,
    reference: string,
    make: (archive: string) => Promise<{ startMs?: number }>,
  ): Promise<BuiltImage> {
    const folder = this.#folder(name, key);
    const partial = `${folder}.partial`;
    await rm(partial, { recursive: true, force: true });
    await mkdir(partial, { recursive: true });
    const measured = await make(join(partial, "image.tar"));
    const { size } = await stat(join(partial, "image.tar"));
    const built = { name, reference, archive: join(folder, "image.tar"), sizeBytes: size, ...measured };
    await writeFile(join(partial, "image.json"), JSON.stringify(built));
    await rename(partial, folder);
    await this.#prune(name);
    return built;
  }

  async #prune(name: string): Promise<void> {
    const own = new RegExp(`^${name}-[0-9a-f]{16}$`);
    const folders = await Promise.all(
      (await readdir(this.#dir))
        .filter((entry) => own.test(entry))
        .map(async (entry) => ({ path: join(this.#dir, entry), usedMs: (await stat(join(this.#dir, entry))).mtimeMs })),
    );
    folders.sort((a, b) => b.usedMs - a.usedMs);
    for (const { path } of folders.slice(KEPT)) await rm(path, { recursive: true });
  }
}
