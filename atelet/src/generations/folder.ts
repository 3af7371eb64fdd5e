import { mkdir, readdir, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { isMissing, namesIn, readJson, removeFolder, removeHalfWritten, writeJson } from "../node-files.ts";
import { stackSchema } from "../volumes/stack.ts";
import { AsideFolder } from "./aside.ts";
import { checkSeal, type Digest, type FileChecks, type Seal, sealOf, sealSchema, stampsOf } from "./seal.ts";

const recordSchema = z.object({
  format: z.literal(1),
  generation: z.number().int().positive(),
  epoch: z.number().int().positive(),
  revision: z.string(),
  imageDigest: z.string(),
  runtime: z.string(),
  fidelity: z.enum(["Memory", "Rootfs", "Data"]).default("Memory"),
  envDigest: z.string().default(""),
  /** The root file system of its program began from a tar of changes: a restore must say so again. */
  rootfsTar: z.boolean().default(false),
  createdAtMs: z.number(),
  /** The frozen content of each volume. */
  volumes: z.array(stackSchema).default([]),
  files: z.array(z.object({ name: z.string(), sizeBytes: z.number().int().nonnegative() })),
  /** Once its content was looked at, soon after it was written. */
  seal: sealSchema.optional(),
});

/** What is written beside an image, before the rename that makes it a generation. */
export type GenerationRecord = z.infer<typeof recordSchema>;

/** Beside an image. */
export interface PageFiles {
  table: string;
  index: string;
}

const recordName = "generation.json";
const imageName = "image";
const tableName = "pages.table";
const indexName = "pages.index";

/**
 * One actor's generations on this node: <dir>/<generation>/{generation.json, image/…}. The rename of
 * <generation>.partial is the commit: what has its final name is whole as far as this process could see (R23: it
 * survives a crash of the atelet, not a power cut).
 */
export class GenerationFolder {
  readonly #dir: string;
  readonly #checks: FileChecks;
  /** What cannot be used. */
  readonly aside: AsideFolder;

  constructor(dir: string, checks: FileChecks) {
    this.#dir = dir;
    this.#checks = checks;
    this.aside = new AsideFolder(dir);
  }

  /** Where a generation's image is. */
  path(generation: number): string {
    return join(this.#home(generation), imageName);
  }

  /** Where the page table of its image is once it was made, and where its page index is once it is in the store. */
  pageFiles(generation: number): PageFiles {
    return pageFilesIn(this.#home(generation));
  }

  /** The same between `begin` and the commit. */
  newPageFiles(generation: number): PageFiles {
    return pageFilesIn(`${this.#home(generation)}.partial`);
  }

  /** An empty folder to write the image into. */
  async begin(generation: number): Promise<string> {
    const partial = `${this.#home(generation)}.partial`;
    await removeFolder(partial);
    const image = join(partial, imageName);
    await mkdir(image, { recursive: true, mode: 0o700 });
    return image;
  }

  /**
   * Records what was written and commits it by rename.
   * @param digests of what was fetched from the store.
   */
  async commit(
    record: Omit<GenerationRecord, "format" | "files" | "seal">,
    digests?: readonly Digest[],
  ): Promise<GenerationRecord> {
    const home = this.#home(record.generation);
    const partial = `${home}.partial`;
    const files = await filesIn(join(partial, imageName));
    const seal = digests && (await sealOf(await stampsOf(join(partial, imageName), namesOf({ files })), digests));
    const whole: GenerationRecord = { format: 1, ...record, files, ...(seal && { seal }) };
    await writeJson(join(partial, recordName), whole, { durable: false });
    // R22: renaming over a folder is impossible, and renaming over large files would flush them.
    await removeFolder(home);
    await rename(partial, home);
    return whole;
  }

  /** A folder beside a generation's that `load` removes. */
  scratch(generation: number): string {
    return `${this.#home(generation)}.scratch`;
  }

  /** Replaces what is recorded of a committed generation, in one step. */
  async rewrite(record: GenerationRecord): Promise<void> {
    await writeJson(join(this.#home(record.generation), recordName), record, { durable: false });
  }

  async abandon(generation: number): Promise<void> {
    await removeFolder(`${this.#home(generation)}.partial`);
  }

  /** Takes the name away first, so that a crash in between leaves no half-deleted generation. */
  async remove(generation: number): Promise<void> {
    const doomed = `${this.#home(generation)}.deleted`;
    try {
      await removeFolder(doomed);
      await rename(this.#home(generation), doomed);
    } catch (error) {
      if (isMissing(error)) return;
      throw error;
    }
    await removeFolder(doomed);
  }

  /** How its files look now; to be taken before they are read for their digests. */
  stamps(record: GenerationRecord): Promise<Map<string, string>> {
    return stampsOf(this.path(record.generation), namesOf(record));
  }

  /**
   * Why a generation cannot be restored from here: its files have other sizes than recorded, or other content than was
   * written. Else the seal that it has from now on.
   * @param options.distrusted reads it even if it looks untouched.
   */
  async check(
    record: GenerationRecord,
    options: { distrusted: boolean } = { distrusted: false },
  ): Promise<{ damage: string } | { seal: Seal | undefined }> {
    const damage = await this.#wrongSize(record);
    if (damage !== undefined) return { damage };
    if (record.seal === undefined) return { seal: undefined };
    const { table } = this.pageFiles(record.generation);
    return checkSeal(this.path(record.generation), record.seal, { ...options, table, checks: this.#checks });
  }

  async #wrongSize(record: GenerationRecord): Promise<string | undefined> {
    for (const { name, sizeBytes } of record.files) {
      const path = join(this.path(record.generation), name);
      try {
        const actual = (await stat(path)).size;
        if (actual !== sizeBytes) return `${name} has ${actual} bytes instead of ${sizeBytes}`;
      } catch (error) {
        if (isMissing(error)) return `${name} is missing`;
        throw error;
      }
    }
    return undefined;
  }

  /**
   * What a restart finds: committed generations, newest first. What is partial or half-deleted is removed. One that was
   * committed and can't be read (a failing disk, another version's format) is set aside: it may be all there is of
   * somebody's work.
   * @returns `aside`: where that was put now.
   */
  async load(): Promise<{ records: GenerationRecord[]; removed: string[]; aside: string[] }> {
    const records: GenerationRecord[] = [];
    const removed: string[] = [];
    const aside: string[] = [];
    await this.aside.load();
    for (const name of await namesIn(this.#dir)) {
      if (AsideFolder.isName(name)) continue;
      const committed = /^\d+$/.test(name);
      const record = committed ? await readRecord(join(this.#dir, name)) : undefined;
      if (record?.generation === Number(name)) {
        records.push(record);
        await removeHalfWritten(join(this.#dir, name));
      } else if (committed) {
        await this.aside.put(Number(name), "its generation.json cannot be read");
        aside.push(this.aside.path(Number(name)));
      } else {
        await removeFolder(join(this.#dir, name));
        removed.push(name);
      }
    }
    records.sort((a, b) => b.generation - a.generation);
    return { records, removed, aside };
  }

  #home(generation: number): string {
    return join(this.#dir, String(generation));
  }
}

function pageFilesIn(home: string): PageFiles {
  return { table: join(home, tableName), index: join(home, indexName) };
}

async function readRecord(dir: string): Promise<GenerationRecord | undefined> {
  try {
    return recordSchema.parse(await readJson(join(dir, recordName)));
  } catch {
    // The caller sets it aside and says so.
    return undefined;
  }
}

function namesOf({ files }: Pick<GenerationRecord, "files">): string[] {
  return files.map(({ name }) => name);
}

async function filesIn(dir: string): Promise<GenerationRecord["files"]> {
  const files: GenerationRecord["files"] = [];
  for (const name of (await readdir(dir)).sort()) {
    files.push({ name, sizeBytes: (await stat(join(dir, name))).size });
  }
  return files;
}
