import { type Dirent, lstatSync, readdirSync } from "node:fs";
import { join } from "node:path";

const BLOCK_BYTES = 512;

/** Allocated space below the node folder by what it is for. */
export interface LocalBytes {
  /** Snapshots of actors: images with their page tables, also half-written and half-removed ones. */
  generation: number;
  /** Golden snapshots and tags that actors start from. */
  origin: number;
  /** Layers of volumes, live and frozen. */
  volume: number;
  /** Unpacked root file systems, and what is pulled for them. */
  image: number;
  /** Logs, records, page tables of what is stored, scratch. */
  other: number;
}

/**
 * Adds up the blocks of every file below the node folder. Blocking: for a worker thread.
 * @param knownImages bytes of unpacked images by their folder's name; they never change. What is found is added.
 */
export function localBytes(dir: string, knownImages: Map<string, number>): LocalBytes {
  const count = new Count();
  const found: LocalBytes = { generation: 0, origin: 0, volume: 0, image: 0, other: 0 };
  for (const entry of entriesOf(dir)) {
    const path = join(dir, entry.name);
    if (entry.name === "actors") addActors(path, found, count);
    else if (entry.name === "images") found.image += imageBytes(path, knownImages, count);
    else if (entry.name === "origins") addOrigins(path, found, count);
    else found.other += count.below(path);
  }
  return found;
}

/** The same of snapshots alone, which are few files. */
export function snapshotBytes(dir: string): number {
  const count = new Count();
  let bytes = 0;
  for (const actor of entriesOf(join(dir, "actors")))
    bytes += count.below(join(dir, "actors", actor.name, "generations"));
  for (const origin of entriesOf(join(dir, "origins"))) {
    for (const part of entriesOf(join(dir, "origins", origin.name))) {
      if (part.name !== "volumes") bytes += count.below(join(dir, "origins", origin.name, part.name));
    }
  }
  return bytes;
}

/** Of everything in a folder. */
export function bytesBelow(path: string): number {
  return new Count().below(path);
}

function addActors(dir: string, found: LocalBytes, count: Count): void {
  for (const actor of entriesOf(dir)) {
    for (const part of entriesOf(join(dir, actor.name))) {
      const bytes = count.below(join(dir, actor.name, part.name));
      if (part.name === "generations") found.generation += bytes;
      else if (part.name === "volumes") found.volume += bytes;
      else found.other += bytes;
    }
  }
}

function addOrigins(dir: string, found: LocalBytes, count: Count): void {
  for (const origin of entriesOf(dir)) {
    for (const part of entriesOf(join(dir, origin.name))) {
      const bytes = count.below(join(dir, origin.name, part.name));
      if (part.name === "volumes") found.volume += bytes;
      else found.origin += bytes;
    }
  }
}

function imageBytes(dir: string, known: Map<string, number>, count: Count): number {
  const names = entriesOf(dir).map(({ name }) => name);
  for (const name of known.keys()) if (!names.includes(name)) known.delete(name);
  let sum = 0;
  for (const name of names) {
    const bytes = known.get(name) ?? count.below(join(dir, name));
    if (/^[0-9a-f]{64}$/.test(name)) known.set(name, bytes);
    sum += bytes;
  }
  return sum;
}

/** Files with several names are counted once. */
class Count {
  readonly #seen = new Set<string>();

  below(path: string): number {
    const stats = unlessGone(() => lstatSync(path));
    if (stats === undefined) return 0;
    if (!stats.isDirectory() && stats.nlink > 1) {
      const inode = `${stats.dev}:${stats.ino}`;
      if (this.#seen.has(inode)) return 0;
      this.#seen.add(inode);
    }
    let bytes = stats.blocks * BLOCK_BYTES;
    if (!stats.isDirectory()) return bytes;
    for (const entry of entriesOf(path)) {
      // what is mounted there is elsewhere, or counted already
      const below = join(path, entry.name);
      if (!entry.isDirectory() || unlessGone(() => lstatSync(below).dev) === stats.dev) bytes += this.below(below);
    }
    return bytes;
  }
}

function entriesOf(dir: string): Dirent[] {
  return unlessGone(() => readdirSync(dir, { withFileTypes: true })) ?? [];
}

/** Files go while one looks, and what a failing disk does not show cannot be counted. */
function unlessGone<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (code === "ENOENT" || code === "ENOTDIR" || code === "EIO") return undefined;
    throw error;
  }
}
