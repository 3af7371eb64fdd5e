import { realpath, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { type ImageFile } from "./oci.ts";
import { outputOf } from "./run.ts";

export interface Libraries {
  files: ImageFile[];
  /** Folders that the loader would not look into by itself: for LD_LIBRARY_PATH, as an image has no ld.so.cache. */
  folders: string[];
  /** Those of the programs of which a library is missing on this machine. */
  incomplete: string[];
}

const searchedByItself = /^\/(usr\/)?lib(64|\/x86_64-linux-gnu)?$/;

/** One line of ldd: "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)", or a loader's path alone. */
function pathIn(line: string): string | undefined {
  return /^\s+(?:\S+ => )?(\/\S+) \(0x[0-9a-f]+\)$/.exec(line)?.[1];
}

/** Sections of ldd's answer about several files; it leaves the file's name out when it is asked about one. */
function sections(answer: string, programs: readonly string[]): [program: string, lines: string[]][] {
  const [only] = programs;
  if (programs.length === 1 && only !== undefined) return [[only, answer.split("\n")]];
  return answer
    .split(/^(?=\S.*:$)/m)
    .filter((part) => part !== "")
    .map((part) => {
      const [head = "", ...lines] = part.split("\n");
      return [head.replace(/:$/, ""), lines];
    });
}

/**
 * The shared libraries of this machine that programs and modules need, their loader among them, at the same paths.
 *
 * @param programs absolute paths, each dynamically linked.
 */
export async function sharedLibraries(programs: readonly string[]): Promise<Libraries> {
  const answer = await outputOf("ldd", programs);
  const paths = new Set<string>();
  const incomplete: string[] = [];
  for (const [program, lines] of sections(answer, programs)) {
    if (lines.some((line) => line.endsWith("=> not found"))) incomplete.push(program);
    else for (const line of lines) paths.add(pathIn(line) ?? "");
  }
  paths.delete("");
  const files = await Promise.all(
    [...paths].map(async (path): Promise<ImageFile> => {
      const source = await realpath(path);
      return { path, source, mode: (await stat(source)).mode & 0o777 };
    }),
  );
  const folders = [...new Set([...paths].map((path) => dirname(path)))].filter((path) => !searchedByItself.test(path));
  return { files, folders, incomplete };
}
