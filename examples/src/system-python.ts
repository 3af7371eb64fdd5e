import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { cp, lstat, mkdir, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { z } from "zod";
import { imageFiles } from "./image-files.ts";
import { type ImageFile } from "./oci.ts";
import { outputOf } from "./run.ts";
import { sharedLibraries } from "./shared-libraries.ts";

/** The first is what a shell starts, the second Debian's: the first may be built without SQLite. */
const usualPlaces = ["python3", "/usr/bin/python3"];
const neededModules = ["sqlite3", "ssl", "mmap", "json", "http.server"];

const installationSchema = z.object({ executable: z.string(), version: z.string(), folders: z.array(z.string()) });
type Installation = z.infer<typeof installationSchema>;

/** Asks the interpreter itself, as `python3` may be a shell script of pyenv or lie in a virtual environment. */
const question = `
import json, sys, sysconfig
import ${neededModules.join(", ")}
paths = sysconfig.get_paths()
executable = getattr(sys, "_base_executable", None) or sys.executable
folders = sorted({paths["stdlib"], paths["platstdlib"]})
print(json.dumps({"executable": executable, "version": sys.version, "folders": folders}))
`;

/** What a program rarely needs, and what only builds or tests Python itself. */
const leftOut = new Set([
  ...[
    "__pycache__",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
    "idlelib",
    "tkinter",
    "turtledemo",
  ],
  ...["ensurepip", "lib2to3", "distutils", "pydoc_data", "turtle.py", "venv"],
]);
const leftOutPatterns = [/^config-/, /^(_test|xx|_tkinter|_ctypes_test|_xxtestfuzz).*\.so$/, /\.a$/];

async function find(candidates: readonly string[]): Promise<Installation> {
  const failures: string[] = [];
  for (const candidate of candidates) {
    try {
      const answer = installationSchema.parse(JSON.parse(await outputOf(candidate, ["-S", "-c", question])));
      return { ...answer, executable: await realpath(answer.executable) };
    } catch (error) {
      failures.push(`${candidate}: ${String(error).trim().split("\n").at(-1) ?? ""}`);
    }
  }
  throw new Error(
    `no python3 with ${neededModules.join(", ")} is on this machine: apt-get install python3 (${failures.join("; ")})`,
  );
}

function isWanted(name: string): boolean {
  return !leftOut.has(name) && !leftOutPatterns.some((pattern) => pattern.test(name));
}

/**
 * A copy of the standard library below `cacheDir`, compiled so that a start in an image, where all times are the same,
 * compiles nothing. Made once for each installation.
 */
async function standardLibrary({ executable, version, folders }: Installation, cacheDir: string): Promise<string> {
  const times = await Promise.all(folders.map(async (folder) => (await stat(folder)).mtimeMs));
  const key = createHash("sha256")
    .update(JSON.stringify([executable, version, folders, times]))
    .digest("hex");
  const made = join(cacheDir, `python-${key.slice(0, 16)}`);
  if (existsSync(made)) return made;
  const partial = `${made}.${process.pid}.partial`;
  try {
    for (const folder of folders) {
      await mkdir(join(partial, folder), { recursive: true });
      await cp(folder, join(partial, folder), {
        recursive: true,
        // a link of the standard library leads out of it, to what its packager configures
        filter: async (source) => source === folder || (isWanted(basename(source)) && !(await isLink(source))),
      });
    }
    const compile = ["-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"];
    await outputOf(executable, ["-S", ...compile, "-s", partial, "-p", "/", partial]);
    await rename(partial, made);
  } catch (error) {
    // another process may have made it at the same time
    if (!existsSync(made)) throw error;
  } finally {
    await rm(partial, { recursive: true, force: true });
  }
  return made;
}

async function isLink(path: string): Promise<boolean> {
  return (await lstat(path)).isSymbolicLink();
}

/**
 * The Python of this machine, for an image: its interpreter at its own path, standard library and shared libraries.
 *
 * @param candidates names or paths; the first that has what is needed is taken.
 */
export async function systemPython(
  cacheDir: string,
  candidates: readonly string[] = usualPlaces,
): Promise<{ files: ImageFile[]; env: string[]; program: string }> {
  await mkdir(cacheDir, { recursive: true });
  const installation = await find(candidates);
  const { executable } = installation;
  const library = await standardLibrary(installation, cacheDir);
  const { files } = await imageFiles(library, "/");
  const modules = files.flatMap((file) => ("source" in file && file.path.endsWith(".so") ? [file.path] : []));
  const { files: libraries, folders, incomplete } = await sharedLibraries([executable, ...modules]);
  if (incomplete.includes(executable)) throw new Error(`${executable} lacks a shared library: see ldd ${executable}`);
  return {
    files: [
      ...files.filter(({ path }) => !incomplete.includes(path)),
      ...libraries,
      { path: executable, mode: 0o755, source: executable },
      ...(executable === "/usr/bin/python3" ? [] : [{ path: "/usr/bin/python3", linkTo: executable }]),
    ],
    env: [
      ...["LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"],
      ...(folders.length === 0 ? [] : [`LD_LIBRARY_PATH=${folders.join(":")}`]),
    ],
    program: executable,
  };
}
