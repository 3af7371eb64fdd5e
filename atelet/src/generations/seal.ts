import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { z } from "zod";

export const sealSchema = z.object({
  /** Of the machine: what its disk held before a restart is read from it anew, and may have changed. */
  boot: z.string(),
  files: z.array(z.object({ name: z.string(), sha256: z.string(), stamp: z.string() })),
});
/**
 * What a stored generation's files contain, and how they looked when that was last seen to be so: while the looks are
 * the same within one start of the machine, nobody has written to them and nothing is read to know it.
 */
export type Seal = z.infer<typeof sealSchema>;

export interface Digest {
  name: string;
  sha256: string;
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
    return stamp === undefined ? [] : [{ name, sha256, stamp }];
  });
  return { boot: await machineBoot(), files };
}

/**
 * Reads what does not look as it did, all of it after a restart of the machine or if it is distrusted.
 * @returns what is damaged, or the seal as it is to be from now on: the same object if nothing had to be read.
 */
export async function checkSeal(
  dir: string,
  seal: Seal,
  options: { distrusted: boolean },
): Promise<{ damage: string } | { seal: Seal }> {
  const sameBoot = seal.boot === (await machineBoot()) && !options.distrusted;
  const files: Seal["files"] = [];
  for (const file of seal.files) {
    const path = join(dir, file.name);
    const stamp = await stampOf(path);
    if (!sameBoot || stamp !== file.stamp) {
      const damage = await differs(path, file);
      if (damage !== undefined) return { damage };
    }
    files.push({ ...file, stamp });
  }
  const same = sameBoot && files.every(({ stamp }, index) => stamp === seal.files[index]?.stamp);
  return { seal: same ? seal : { boot: await machineBoot(), files } };
}

async function differs(path: string, { name, sha256 }: Digest): Promise<string | undefined> {
  const hash = createHash("sha256");
  try {
    await pipeline(createReadStream(path, { highWaterMark: 1 << 20 }), hash);
  } catch (error) {
    return `${name} cannot be read: ${error instanceof Error ? error.message : String(error)}`;
  }
  return hash.digest("hex") === sha256 ? undefined : `${name} has other content than was stored`;
}

async function machineBoot(): Promise<string> {
  return (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
}
