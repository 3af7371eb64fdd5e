import { cp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isMissing } from "../node-files.ts";
import { type Mounted } from "./mountinfo.ts";
import { type Mounts, type Overlay } from "./mounts.ts";

/**
 * Overlays without root, for tests of what happens to layers: a view is a copy, and a writable mount is asked by name.
 * What the kernel's do is tested in e2e/.
 */
export class FakeMounts implements Mounts {
  readonly mounted = new Map<string, Overlay>();
  readonly bound = new Map<string, string>();
  /** What the next mount throws. */
  failNext: Error | undefined;

  async mount(overlay: Overlay): Promise<void> {
    const failure = this.failNext;
    this.failNext = undefined;
    if (failure !== undefined) throw failure;
    const target = join(overlay.home, overlay.target);
    if (this.mounted.has(target)) throw new Error(`${target} is mounted already`);
    const layers = [...(overlay.upper === undefined ? [] : [overlay.upper.data]), ...overlay.lowers];
    for (const layer of layers) await readdir(join(overlay.home, layer));
    this.mounted.set(target, overlay);
    if (overlay.upper !== undefined) return;
    for (const lower of [...overlay.lowers].reverse()) {
      await cp(join(overlay.home, lower), target, { recursive: true, force: true });
    }
  }

  bind(source: string, target: string): Promise<void> {
    this.bound.set(target, source);
    return Promise.resolve();
  }

  share(): Promise<void> {
    return Promise.resolve();
  }

  async unmount(target: string): Promise<void> {
    if (this.bound.delete(target)) return;
    const overlay = this.mounted.get(target);
    this.mounted.delete(target);
    if (overlay?.upper === undefined) await emptied(target);
  }

  below(dir: string): Promise<Mounted[]> {
    const found = [...this.mounted].filter(([target]) => target.startsWith(`${dir}/`));
    const binds = [...this.bound.keys()].filter((target) => target.startsWith(`${dir}/`));
    return Promise.resolve([
      ...binds.map((target) => ({ target, layers: [] })),
      ...found.map(([target, { lowers, upper }]) => ({ target, layers: [...(upper ? [upper.data] : []), ...lowers] })),
    ]);
  }

  /** As a program does at the mount point. */
  async write(target: string, file: string, content: string): Promise<void> {
    const { home, upper } = this.#at(target);
    if (upper === undefined) throw new Error(`${target} is read-only`);
    await writeFile(join(home, upper.data, file), content);
  }

  async read(target: string, file: string): Promise<string | undefined> {
    const { home, lowers, upper } = this.#at(target);
    for (const layer of [...(upper ? [upper.data] : []), ...lowers]) {
      try {
        return await readFile(join(home, layer, file), "utf8");
      } catch (error) {
        if (!isMissing(error)) throw error;
      }
    }
    return undefined;
  }

  #at(target: string): Overlay {
    const overlay = this.mounted.get(target);
    if (overlay === undefined) throw new Error(`nothing is mounted at ${target}`);
    return overlay;
  }
}

async function emptied(dir: string): Promise<void> {
  try {
    for (const name of await readdir(dir)) await rm(join(dir, name), { recursive: true });
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}
