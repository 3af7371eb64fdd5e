import { open } from "node:fs/promises";
import { basename, posix } from "node:path";
import { type ImageFile } from "./oci.ts";

const MAX_LINKS = 40;
/** elf(5): offsets and values of the 64-bit header and its program headers. */
const elf = { magic: "\u007fELF", class64: 2, x86_64: 62, headerBytes: 64, programHeaderBytes: 56, interpreter: 3 };
const START_BYTES = 256;

type Files = ReadonlyMap<string, ImageFile>;

/** Follows the image's own links. Undefined when a link leads nowhere or in circles. */
function resolveInImage(files: Files, path: string, links = 0): string | undefined {
  if (links > MAX_LINKS) return undefined;
  const parts = posix.resolve("/", path).split("/").slice(1);
  let current = "/";
  for (const [index, part] of parts.entries()) {
    const next = posix.join(current, part);
    const entry = files.get(next);
    if (entry !== undefined && "linkTo" in entry) {
      const rest = parts.slice(index + 1).join("/");
      return resolveInImage(files, posix.join(posix.resolve(current, entry.linkTo), rest), links + 1);
    }
    current = next;
  }
  return current;
}

function fileAt(files: Files, path: string): Extract<ImageFile, { source: string }> | undefined {
  const file = files.get(resolveInImage(files, path) ?? "");
  return file !== undefined && "source" in file ? file : undefined;
}

async function bytesOf(source: string, position: number, length: number): Promise<Buffer> {
  await using file = await open(source);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, position);
  return buffer.subarray(0, bytesRead);
}

/** The path of the program that the kernel starts for this one (its loader, or a script's), undefined for a static one. */
async function interpreterOf(source: string): Promise<string | undefined> {
  const start = await bytesOf(source, 0, START_BYTES);
  const text = start.toString("latin1");
  if (text.startsWith("#!")) return /^#!\s*(\S+)/.exec(text)?.[1];
  if (!text.startsWith(elf.magic) || start.length < elf.headerBytes) {
    throw new Error(`${source} is neither a Linux program nor a script that begins with #! and its interpreter`);
  }
  if (start[4] !== elf.class64 || start.readUInt16LE(18) !== elf.x86_64) {
    throw new Error(`${source} is not built for x86-64: build it for linux/amd64 (Go: GOOS=linux GOARCH=amd64)`);
  }
  const headers = await bytesOf(
    source,
    Number(start.readBigUInt64LE(32)),
    start.readUInt16LE(56) * elf.programHeaderBytes,
  );
  for (let at = 0; at + elf.programHeaderBytes <= headers.length; at += elf.programHeaderBytes) {
    if (headers.readUInt32LE(at) !== elf.interpreter) continue;
    const offset = Number(headers.readBigUInt64LE(at + 8));
    const length = Number(headers.readBigUInt64LE(at + 32));
    return (await bytesOf(source, offset, length)).toString("utf8").replace(/\0$/, "");
  }
  return undefined;
}

/**
 * Finds what would keep the image's command from starting before a sandbox does: it is missing, not executable, for
 * another processor, or needs a loader or an interpreter that the image lacks.
 *
 * @param image.searchPath the image's PATH. @throws with the way out.
 */
export async function checkImageCommand(image: {
  files: readonly ImageFile[];
  program: string;
  searchPath: string;
  workingDir: string;
}): Promise<void> {
  const { program, searchPath, workingDir } = image;
  const files = new Map(image.files.map((file) => [file.path, file]));
  const places = program.includes("/")
    ? [posix.resolve(workingDir, program)]
    : searchPath.split(":").map((folder) => posix.join(folder, program));
  const file = places.map((path) => fileAt(files, path)).find((found) => found !== undefined);
  if (file === undefined) {
    const same = image.files.find(({ path }) => basename(path) === basename(program))?.path;
    const fix = same === undefined ? `add it as SOURCE:${places[0] ?? program}` : `it has ${same}: name that one`;
    throw new Error(`the command ${program} is not a file of the image (it would be ${places.join(" or ")}): ${fix}`);
  }
  if ((file.mode & 0o111) === 0) throw new Error(`${file.path} is not executable: chmod +x ${file.source}`);
  const interpreter = await interpreterOf(file.source);
  if (interpreter === undefined || fileAt(files, interpreter) !== undefined) return;
  throw new Error(
    `${file.path} needs ${interpreter}, which is not in the image: build the program statically ` +
      "(Go: CGO_ENABLED=0, C: -static), or add a root file system that has it",
  );
}
