import { mkdir, readdir, rename, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { asSubstrateError } from "@substrate/lib/errors.ts";
import { checkSeal, type Digest, type FileChecks, sealOf, sealSchema, stampsOf } from "../generations/seal.ts";
import { type LocalPages } from "../pages/pages.ts";
import { pagesFile } from "../store/layout.ts";
import { isMissing, readJson, removeFolder, removeHalfWritten, writeJson } from "../node-files.ts";

const originRecordSchema = z.object({
  format: z.literal(1),
  /** <namespace>/<name> of the Snapshot object, for messages. */
  name: z.string(),
  revision: z.string(),
  imageDigest: z.string(),
  runtime: z.string(),
  fidelity: z.enum(["Memory", "Rootfs", "Data"]),
  /** Of the environment that its program was started with; empty: none. */
  envDigest: z.string(),
  createdAtMs: z.number(),
  files: z.array(z.object({ name: z.string(), sizeBytes: z.number().int().nonnegative() })),
  /** Names of the volumes that it has data of. */
  volumes: z.array(z.string()),
  /** See Manifest. */
  rootfsTar: z.boolean(),
  /** Once it is in the store. */
  seal: sealSchema.optional(),
  /** Its Snapshot object was deleted: it goes as soon as nobody uses it. */
  doomed: z.boolean().default(false),
});
/** What lies beside the files of an origin. */
export type OriginRecord = z.infer<typeof originRecordSchema>;

/** What a filled folder becomes an origin with. */
export type OriginFacts = Omit<OriginRecord, "format" | "files" | "doomed" | "seal">;

const recordName = "origin.json";

/**
 * Snapshots that actors start from, on this node: <dir>/<uid>/{origin.json, pages.table, pages.index, image/…, volumes/<name>/data}. What has its
 * final name is whole; everything in it is read-only from then on.
 */
export class OriginFolder {
  readonly dir: string;
  readonly #checks: FileChecks;

  constructor(dir: string, checks: FileChecks) {
    this.dir = dir;
    this.#checks = checks;
  }

  home(uid: string): string {
    return join(this.dir, uid);
  }

  imageDir(uid: string): string {
    return join(this.home(uid), "image");
  }

  /** Its memory image, with the page table and the page index that it may have. */
  pages(uid: string): LocalPages {
    return pagesIn(join(this.dir, uid));
  }

  /** The same between begin and commit. */
  newPages(uid: string): LocalPages {
    return pagesIn(this.#partial(uid));
  }

  /** How its files look; to be taken before they are read for their digests. */
  stamps(uid: string, record: OriginRecord): Promise<ReadonlyMap<string, string>> {
    return stampsOf(this.imageDir(uid), namesOf(record));
  }

  async keepIndex(uid: string, index: Uint8Array): Promise<void> {
    const path = this.pages(uid).index;
    await writeFile(`${path}.tmp`, index, { mode: 0o600 });
    await rename(`${path}.tmp`, path);
  }

  volumeDir(uid: string, name: string): string {
    return join(this.dir, uid, "volumes", name, "data");
  }

  /** The empty folder that a volume's content is to be put into, or to take the place of, between begin and commit. */
  newVolumeDir(uid: string, name: string): string {
    return join(this.#partial(uid), "volumes", name, "data");
  }

  /** An empty folder with image/ and volumes/ in it. */
  async begin(uid: string): Promise<string> {
    const partial = this.#partial(uid);
    await removeFolder(partial);
    for (const name of ["image", "volumes"]) await mkdir(join(partial, name), { recursive: true, mode: 0o700 });
    return partial;
  }

  /** @param digests of what was fetched from the store. */
  async commit(uid: string, facts: OriginFacts, digests?: readonly Digest[]): Promise<OriginRecord> {
    const partial = this.#partial(uid);
    const files = await filesIn(join(partial, "image"));
    const seal = digests && (await sealOf(await stampsOf(join(partial, "image"), namesOf({ files })), digests));
    const record: OriginRecord = { format: 1, ...facts, files, doomed: false, ...(seal && { seal }) };
    await writeJson(join(partial, recordName), record, { durable: false });
    await rename(partial, join(this.dir, uid));
    return record;
  }

  async abandon(uid: string): Promise<void> {
    await removeFolder(this.#partial(uid));
  }

  async rewrite(uid: string, record: OriginRecord): Promise<void> {
    await writeJson(join(this.dir, uid, recordName), record, { durable: false });
  }

  /** Takes the name away first, so that a crash in between leaves no half of it. */
  async remove(uid: string): Promise<void> {
    const doomed = join(this.dir, `${uid}.deleted`);
    await removeFolder(doomed);
    try {
      await rename(join(this.dir, uid), doomed);
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
    await removeFolder(doomed);
  }

  /** What is wrong with its files here, by their sizes, and by their content if that may have changed since. */
  async damage(uid: string, record: OriginRecord): Promise<string | undefined> {
    const wrong = await this.#wrongSize(uid, record);
    if (wrong !== undefined || record.seal === undefined) return wrong;
    const { table } = this.pages(uid);
    try {
      const checked = await checkSeal(this.imageDir(uid), record.seal, {
        distrusted: false,
        table,
        checks: this.#checks,
      });
      if ("damage" in checked) return checked.damage;
      if (checked.seal !== record.seal) {
        record.seal = checked.seal;
        await this.rewrite(uid, record);
      }
      return undefined;
    } catch (error) {
      // without a whole page table nothing is known, and the stored one is good
      return asSubstrateError(error).message;
    }
  }

  async #wrongSize(uid: string, record: OriginRecord): Promise<string | undefined> {
    for (const { name, sizeBytes } of record.files) {
      const actual = await sizeOf(join(this.imageDir(uid), name));
      if (actual !== sizeBytes) return `${name} has ${actual ?? "no"} bytes instead of ${sizeBytes}`;
    }
    for (const name of record.volumes) {
      if ((await sizeOf(this.volumeDir(uid, name))) === undefined) return `volume ${name} is missing`;
    }
    return undefined;
  }

  /** What a restart finds; what is not whole is removed. */
  async load(): Promise<Map<string, OriginRecord>> {
    await mkdir(this.dir, { recursive: true, mode: 0o700 });
    const found = new Map<string, OriginRecord>();
    for (const name of await readdir(this.dir)) {
      const record = name.includes(".") ? undefined : await readRecord(join(this.dir, name));
      if (record === undefined) await removeFolder(join(this.dir, name));
      else {
        await removeHalfWritten(join(this.dir, name));
        found.set(name, record);
      }
    }
    return found;
  }

  #partial(uid: string): string {
    return join(this.dir, `${uid}.partial`);
  }
}

function namesOf({ files }: Pick<OriginRecord, "files">): string[] {
  return files.map(({ name }) => name);
}

function pagesIn(home: string): LocalPages {
  return {
    file: join(home, "image", pagesFile),
    table: join(home, "pages.table"),
    index: join(home, "pages.index"),
  };
}

async function readRecord(dir: string): Promise<OriginRecord | undefined> {
  try {
    return originRecordSchema.parse(await readJson(join(dir, recordName)));
  } catch {
    // Unreadable or of another format: it is fetched again when it is needed.
    return undefined;
  }
}

async function filesIn(dir: string): Promise<OriginRecord["files"]> {
  const files: OriginRecord["files"] = [];
  for (const name of (await readdir(dir)).sort()) files.push({ name, sizeBytes: (await stat(join(dir, name))).size });
  return files;
}

async function sizeOf(path: string): Promise<number | undefined> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}
