import { randomUUID } from "node:crypto";
import { chmod, chown, lstat, mkdir, rename, utimes } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { isMissing, namesIn, removeFolder } from "../node-files.ts";
import { COPY_WITHIN_MS, packFolder, unpackFolder } from "./archive.ts";
import { runTool } from "./commands.ts";
import { type Mounts, type Overlay } from "./mounts.ts";
import { type Layer } from "./stack.ts";

const LAYERS = "layers";
const MOUNT_POINT = "mnt";
/** What every overlay has at its bottom: the kernel wants a lower layer, and two where there is no upper one. */
const BASE = "base";
const VIEW = "view-";
/** Beside the volumes, whose names can't begin so: layers that are being removed. */
export const DOOMED = ".doomed-";

export interface VolumeFolderOptions {
  volumesDir: string;
  name: string;
  originsDir: string;
  /** Ends copies and archives. */
  signal: AbortSignal;
}

/** One volume of one actor: <home>/{base, layers/<n>/{data,work}, mnt, view-<k>}. */
export class VolumeFolder {
  readonly home: string;
  readonly #originsDir: string;
  readonly #name: string;
  readonly #signal: AbortSignal;

  constructor({ volumesDir, name, originsDir, signal }: VolumeFolderOptions) {
    this.home = join(volumesDir, name);
    this.#name = name;
    this.#originsDir = originsDir;
    this.#signal = signal;
  }

  get mountPoint(): string {
    return join(this.home, MOUNT_POINT);
  }

  async create(): Promise<void> {
    for (const name of [LAYERS, MOUNT_POINT, BASE])
      await mkdir(join(this.home, name), { recursive: true, mode: 0o700 });
  }

  async remove(): Promise<void> {
    await removeFolder(this.home);
  }

  /** Absolute. */
  data(layer: Layer): string {
    if ("own" in layer) return join(this.home, LAYERS, String(layer.own), "data");
    return join(this.#originsDir, layer.origin, "volumes", this.#name, "data");
  }

  /** Numbers of the layers that are here, whole or not. */
  async layers(): Promise<number[]> {
    return (await namesIn(join(this.home, LAYERS))).map((name) => Number.parseInt(name, 10));
  }

  /** An empty layer to be the upper one over a stack; its root looks as the stack's does. */
  async createLayer(number: number, over: readonly Layer[]): Promise<void> {
    const dir = join(this.home, LAYERS, String(number));
    await mkdir(join(dir, "work"), { recursive: true, mode: 0o700 });
    await mkdir(join(dir, "data"));
    const top = over[0];
    // As an emptyDir: whoever the program runs as can write.
    if (top === undefined) await chmod(join(dir, "data"), 0o777);
    else await copyAttributes(this.data(top), join(dir, "data"));
  }

  /** Takes a layer's name away, so that it counts no more; @returns what is to be removed, if it was there. */
  async doomLayer(number: number): Promise<string[]> {
    const doomed = join(dirname(this.home), `${DOOMED}${randomUUID()}`);
    try {
      await rename(join(this.home, LAYERS, String(number)), doomed);
    } catch (error) {
      if (isMissing(error)) return [];
      throw error;
    }
    return [doomed];
  }

  /** Removes the views that a crash has left; none of them is mounted any more. */
  async tidy(): Promise<void> {
    for (const name of await namesIn(this.home)) {
      if (name.startsWith(VIEW)) await removeFolder(join(this.home, name));
    }
  }

  /** The overlay that a sandbox gets: all layers of the stack, the newest one writable. */
  writable(number: number, over: readonly Layer[]): Overlay {
    const upper = `${LAYERS}/${number}`;
    return {
      home: this.home,
      target: MOUNT_POINT,
      lowers: [...this.#paths(over), BASE],
      upper: { data: `${upper}/data`, work: `${upper}/work` },
    };
  }

  /** Gives `read` a read-only view of a stack. */
  async withView<T>(mounts: Mounts, layers: readonly Layer[], read: (view: string) => Promise<T>): Promise<T> {
    const target = `${VIEW}${randomUUID()}`;
    const view = join(this.home, target);
    await mkdir(view, { recursive: true, mode: 0o700 });
    try {
      await mounts.mount({ home: this.home, target, lowers: [...this.#paths(layers), BASE] });
      return await read(view);
    } finally {
      await mounts.unmount(view);
      await removeFolder(view);
    }
  }

  /** One new layer with the content of a stack. */
  async copyLayers(mounts: Mounts, layers: readonly Layer[], into: number): Promise<void> {
    const dir = join(this.home, LAYERS, String(into));
    await mkdir(join(dir, "work"), { recursive: true, mode: 0o700 });
    await this.withView(mounts, layers, async (view) => {
      await runTool("cp", ["-a", "--sparse=always", "--reflink=auto", "-T", view, join(dir, "data")], {
        timeoutMs: COPY_WITHIN_MS,
        signal: this.#signal,
      });
    });
  }

  /** Writes the content of a stack into a new tar file. */
  async pack(mounts: Mounts, layers: readonly Layer[], file: string): Promise<void> {
    await this.withView(mounts, layers, async (view) => {
      await packFolder(view, file, this.#signal);
    });
  }

  /** Makes a layer from a tar file of `pack`. */
  async unpack(file: string, into: number): Promise<void> {
    const dir = join(this.home, LAYERS, String(into));
    await mkdir(join(dir, "work"), { recursive: true, mode: 0o700 });
    await mkdir(join(dir, "data"));
    await unpackFolder(file, join(dir, "data"), this.#signal);
  }

  /** Why a stack cannot be used, or undefined. */
  async damage(layers: readonly Layer[]): Promise<string | undefined> {
    for (const layer of layers) {
      try {
        if ((await lstat(this.data(layer))).isDirectory()) continue;
      } catch (error) {
        if (!isMissing(error)) throw error;
      }
      return `layer ${"own" in layer ? layer.own : `of ${layer.origin}`} of volume ${this.#name} is missing`;
    }
    return undefined;
  }

  #paths(layers: readonly Layer[]): string[] {
    return layers.map((layer) => relative(this.home, this.data(layer)));
  }
}

async function copyAttributes(from: string, to: string): Promise<void> {
  const { mode, uid, gid, atime, mtime } = await lstat(from);
  await chown(to, uid, gid);
  await chmod(to, mode & 0o7777);
  await utimes(to, atime, mtime);
}
