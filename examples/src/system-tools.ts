import { realpath } from "node:fs/promises";
import { type ImageFile } from "./oci.ts";
import { outputOf } from "./run.ts";
import { sharedLibraries } from "./shared-libraries.ts";

/** tar is what `kubectl ate cp` starts, the others what a person in `kubectl ate exec -it … -- sh` asks for first. */
export const toolNames = ["sh", "tar", "cat", "cp", "env", "ls", "mkdir", "mv", "rm", "sleep"] as const;

/** These programs of this machine, for an image, in /bin, with their shared libraries. */
export async function systemTools(): Promise<{ files: ImageFile[]; env: string[] }> {
  const sources = await Promise.all(
    toolNames.map(async (name) => {
      const found = (await outputOf("sh", ["-c", 'command -v "$1"', "sh", name])).trim();
      return { name, source: await realpath(found) };
    }),
  );
  const { files, folders, incomplete } = await sharedLibraries(sources.map(({ source }) => source));
  if (incomplete.length > 0) throw new Error(`${incomplete.join(", ")} lacks a shared library: see what ldd says`);
  return {
    files: [...files, ...sources.map(({ name, source }) => ({ path: `/bin/${name}`, mode: 0o755, source }))],
    env: folders.length === 0 ? [] : [`LD_LIBRARY_PATH=${folders.join(":")}`],
  };
}
