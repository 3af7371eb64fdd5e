import { createReadStream, createWriteStream } from "node:fs";
import { lstat, mkdir, readdir, readlink, rm, symlink } from "node:fs/promises";
import { dirname, join, posix, relative, resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { extract, type Header, type Pack } from "tar-stream";

const permissions = 0o7777;

/** Adds a file, or a folder with all below it, under another name. @returns what an archive cannot hold */
export async function addTo(tar: Pack, source: string, name: string): Promise<string[]> {
  const found = await lstat(source);
  const header = { name, mode: found.mode & permissions, mtime: found.mtime, uid: 0, gid: 0 };
  if (found.isSymbolicLink()) {
    tar.entry({ ...header, type: "symlink", linkname: await readlink(source) });
    return [];
  }
  if (found.isFile()) {
    await pipeline(createReadStream(source), tar.entry({ ...header, type: "file", size: found.size }));
    return [];
  }
  if (!found.isDirectory()) return [source];
  tar.entry({ ...header, name: `${name}/`, type: "directory" });
  const skipped: string[] = [];
  for (const entry of await readdir(source)) {
    skipped.push(...(await addTo(tar, join(source, entry), posix.join(name, entry))));
  }
  return skipped;
}

/**
 * Where an entry of an archive from inside an actor belongs below `target`, which takes the place of `root` in its
 * names; undefined for an entry that would be anywhere else. Programs in actors are not trusted.
 */
export function targetOf(name: string, root: string, target: string): string | undefined {
  const normal = posix.normalize(name).replace(/\/$/, "");
  if (normal === root) return target;
  if (!normal.startsWith(`${root}/`)) return undefined;
  return join(target, normal.slice(root.length + 1));
}

/** Whether a link's text, read at `path`, leads to something below `target`. */
export function staysBelow(target: string, path: string, linkTo: string): boolean {
  const to = relative(resolve(target), resolve(dirname(path), linkTo));
  return !linkTo.startsWith("/") && to !== ".." && !to.startsWith("../");
}

/** Unpacks what arrives. Links come last, so that no file is written through one. @returns what was left out, and why */
export class Unpacking {
  readonly stream = extract();
  readonly done: Promise<string[]>;
  files = 0;
  readonly #root: string;
  readonly #target: string;

  constructor(root: string, target: string) {
    this.#root = root;
    this.#target = target;
    this.done = this.#unpack();
    this.done.catch(() => undefined);
  }

  async #unpack(): Promise<string[]> {
    const skipped: string[] = [];
    const links: { path: string; linkTo: string }[] = [];
    for await (const entry of this.stream) {
      const { header } = entry;
      const path = targetOf(header.name, this.#root, this.#target);
      const linkTo = header.linkname;
      if (path === undefined) skipped.push(`${header.name}: it is outside of what was asked for`);
      else if (await this.#isBehindLink(path)) skipped.push(behindLink(header.name));
      else if (header.type === "symlink" && staysBelow(this.#target, path, linkTo)) links.push({ path, linkTo });
      else if (header.type === "symlink")
        skipped.push(`${header.name}: a link that leads out of the copy, to ${linkTo}`);
      else if (header.type === "directory") await mkdir(path, { recursive: true });
      else if (header.type === "file") {
        await this.#write(path, header, entry);
        continue;
      } else skipped.push(`${header.name}: a ${header.type} is not copied`);
      entry.resume();
    }
    for (const { path, linkTo } of links) {
      if (await this.#isBehindLink(path)) {
        skipped.push(behindLink(path));
        continue;
      }
      await mkdir(dirname(path), { recursive: true });
      await rm(path, { force: true });
      await symlink(linkTo, path);
      this.files += 1;
    }
    return skipped;
  }

  /**
   * Whether a link below the target leads there. What a link means depends on where it really lies: of several harmless
   * ones, each written through the one before, the last leads anywhere.
   */
  async #isBehindLink(path: string): Promise<boolean> {
    const steps = relative(this.#target, dirname(path)).split("/");
    for (let i = 1; i <= steps.length; i += 1) {
      const step = join(this.#target, ...steps.slice(0, i));
      // the target itself, and the way to it, are the person's own choice
      if (relative(this.#target, step) !== "" && (await isLink(step))) return true;
    }
    return false;
  }

  async #write(path: string, header: Header, content: AsyncIterable<unknown>): Promise<void> {
    await mkdir(dirname(path), { recursive: true });
    // a link that lies there already is replaced, not followed
    await rm(path, { force: true });
    await pipeline(Readable.from(content), createWriteStream(path, { mode: header.mode & 0o777 }));
    this.files += 1;
  }
}

function behindLink(name: string): string {
  return `${name}: it lies behind a link, which is not followed`;
}

async function isLink(path: string): Promise<boolean> {
  try {
    return (await lstat(path)).isSymbolicLink();
  } catch (error) {
    if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR"))
      return false;
    throw error;
  }
}
