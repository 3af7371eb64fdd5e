import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";

export const sealSchema = z.object({
  /** Of the machine: what its disk held before a restart is read from it anew, and may have changed. */
  boot: z.string(),
  /** Without a digest: the pages file, whose content its page table knows. */
  files: z.array(z.object({ name: z.string(), sha256: z.string().optional(), stamp: z.string() })),
});
/**
 * What a generation's files contain, and how they looked when that was last seen to be so: while the looks are
 * the same within one start of the machine, nobody has written to them and nothing is read to know it.
 */
export type Seal = z.infer<typeof sealSchema>;

export interface Digest {
  name: string;
  /** undefined: its page table knows. */
  sha256?: string | undefined;
}

/** Reads files, on threads that are not the event loop's. */
export interface FileChecks {
  digest(path: string): Promise<{ sha256: string }>;
  /** What is wrong with an image, by its page table; undefined if nothing is. */
  verify(image: { file: string; table: string }): Promise<string | undefined>;
}

/** Changes with every write, and with the file's being another one; a change time can't be set by hand. */
async function stampOf(path: string): Promise<string> {
  const { ino, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
  return `${ino}:${mtimeNs}:${ctimeNs}`;
}

/** By name; to be taken before the digests are. */
export async function stampsOf(dir: string, names: readonly string[]): Promise<Map<string, string>> {
  return new Map(
    await Promise.all(names.map(async (name): Promise<[string, string]> => [name, await stampOf(join(dir, name))])),
  );
}

/** Of those digests whose files are in the image: volumes are stored with it as archives that are not. */
export async function sealOf(stamps: ReadonlyMap<string, string>, digests: readonly Digest[]): Promise<Seal> {
  const files = digests.flatMap(({ name, sha256 }) => {
    const stamp = stamps.get(name);
    return stamp === undefined ? [] : [{ name, ...(sha256 !== undefined && { sha256 }), stamp }];
  });
  return { boot: await machineBoot(), files };
}

/**
 * Reads what does not look as it did, all of it after a restart of the machine or if it is distrusted. Throws for an
 * image whose page table is not whole, and when a file can't be read: it may be the only one, and good.
 * @returns what is damaged, or the seal as it is to be from now on: the same object if nothing had to be read.
 */
export async function checkSeal(
  dir: string,
  seal: Seal,
  options: { distrusted: boolean; table: string; checks: FileChecks },
): Promise<{ damage: string } | { seal: Seal }> {
  const sameBoot = seal.boot === (await machineBoot()) && !options.distrusted;
  const files: Seal["files"] = [];
  for (const file of seal.files) {
    const path = join(dir, file.name);
    const stamp = await stampOf(path);
    if (!sameBoot || stamp !== file.stamp) {
      const damage = await differs(path, file, options);
      if (damage !== undefined) return { damage };
    }
    files.push({ ...file, stamp });
  }
  const same = sameBoot && files.every(({ stamp }, index) => stamp === seal.files[index]?.stamp);
  return { seal: same ? seal : { boot: await machineBoot(), files } };
}

/** Throws if it cannot be known: without a page table, or when a file can't be read now, though perhaps later. */
async function differs(
  path: string,
  { name, sha256 }: Digest,
  { table, checks }: { table: string; checks: FileChecks },
): Promise<string | undefined> {
  if (sha256 === undefined) return checks.verify({ file: path, table });
  return (await checks.digest(path)).sha256 === sha256 ? undefined : `${name} has other content than was written`;
}

async function machineBoot(): Promise<string> {
  return (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
}
