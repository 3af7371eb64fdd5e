import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { readJson, removeHalfWritten, writeJson } from "../node-files.ts";

const releaseSchema = z.object({ epoch: z.number().int().nonnegative(), releasedAtMs: z.number() });

/** design.md §7 Release: kept at least this long. */
const KEEP_MS = 7 * 24 * 3600 * 1000;

/** The epochs that this node has given up: it never acts on one of them, or on a lower one, again. */
export class Releases {
  readonly #dir: string;
  readonly #epochs = new Map<string, number>();

  constructor(dir: string) {
    this.#dir = dir;
  }

  async load(nowMs: number): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await removeHalfWritten(this.#dir);
    for (const name of await readdir(this.#dir)) {
      if (!name.endsWith(".json")) continue;
      const path = join(this.#dir, name);
      const parsed = releaseSchema.safeParse(await readJson(path));
      // Without it this node might act on an epoch that it has given up: a person must look.
      if (!parsed.success) throw new Error(`${path} is damaged: ${parsed.error.message}`);
      const release = parsed.data;
      if (nowMs - release.releasedAtMs > KEEP_MS) await rm(path);
      else this.#epochs.set(name.slice(0, -".json".length), release.epoch);
    }
  }

  /** The highest epoch released; 0 if none. */
  epoch(uid: string): number {
    return this.#epochs.get(uid) ?? 0;
  }

  /** Durable when it resolves. */
  async record(uid: string, epoch: number, nowMs: number): Promise<void> {
    const highest = Math.max(epoch, this.epoch(uid));
    await writeJson(join(this.#dir, `${uid}.json`), { epoch: highest, releasedAtMs: nowMs }, { durable: true });
    this.#epochs.set(uid, highest);
  }
}
