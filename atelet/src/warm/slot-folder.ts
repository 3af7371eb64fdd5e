import { chmod, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { namesIn, removeFolder } from "../node-files.ts";
import { type Mounts, unmountBelow } from "../volumes/mounts.ts";

/**
 * Where warm sandboxes have their files: `<dir>/<sandbox>/{bundle, identity, output.log, volumes/<n>}`. The folder is a
 * shared mount: what is bound to `volumes/<n>` later is seen by a sandbox that was created before.
 */
export class SlotFolders {
  readonly #dir: string;
  readonly #mounts: Mounts;

  constructor(dir: string, mounts: Mounts) {
    this.#dir = dir;
    this.#mounts = mounts;
  }

  /** Removes all that belongs to none of these sandboxes. */
  async start(keep: ReadonlySet<string>): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    for (const name of await namesIn(this.#dir)) if (!keep.has(name)) await this.remove(name);
    if (!(await this.#isShared())) await this.#mounts.share(this.#dir);
  }

  async create(id: string, volumes: number): Promise<SlotFolder> {
    const folder = this.of(id, volumes);
    await mkdir(folder.identity, { recursive: true, mode: 0o755 });
    await mkdir(folder.bundle, { mode: 0o700 });
    for (const volume of folder.volumes) await mkdir(volume, { recursive: true });
    // the program's user must be able to look into what is mounted from here
    await chmod(this.#path(id), 0o755);
    return folder;
  }

  of(id: string, volumes: number): SlotFolder {
    const dir = this.#path(id);
    return {
      bundle: join(dir, "bundle"),
      identity: join(dir, "identity"),
      output: join(dir, "output.log"),
      volumes: Array.from({ length: volumes }, (_, index) => join(dir, "volumes", String(index))),
    };
  }

  /** No error if there is none. Nobody may use it any more: then its volumes can be let go. */
  async unmount(id: string): Promise<void> {
    await unmountBelow(this.#mounts, this.#path(id));
  }

  async remove(id: string): Promise<void> {
    await this.unmount(id);
    await removeFolder(this.#path(id));
  }

  /** Last shutdown. */
  async destroy(): Promise<void> {
    for (const name of await namesIn(this.#dir)) await this.remove(name);
    await this.#mounts.unmount(this.#dir);
    await removeFolder(this.#dir);
  }

  async #isShared(): Promise<boolean> {
    return (await this.#mounts.below(dirname(this.#dir))).some(({ target }) => target === this.#dir);
  }

  #path(id: string): string {
    return join(this.#dir, id);
  }
}

export interface SlotFolder {
  bundle: string;
  identity: string;
  output: string;
  /** Where each of its volumes is to be bound. */
  volumes: readonly string[];
}
