import { type Stats } from "node:fs";
import { chmod, lstat, mkdir, readdir, readFile, readlink, rm, symlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

/** As Linux' own limit (MAXSYMLINKS). */
const maxLinks = 40;

/** A user database is small; a larger file is not read into memory. */
const maxDatabaseBytes = 4 << 20;

/** Where the runtime mounts something: made now, because it would make them in the shared rootfs at the start. */
const mountPoints: readonly (readonly [path: string, mode: number])[] = [
  ["/proc", 0o755],
  ["/sys", 0o755],
  ["/dev", 0o755],
  ["/dev/shm", 0o1777],
  ["/tmp", 0o1777],
  ["/run/ate", 0o755],
];

/** The image's files are not as they must be; the message lacks the image's name. */
export class RootfsError extends Error {}

async function lstatIfThere(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

/**
 * Where a path of the image lies on this machine, its links followed as inside the image: never out of the rootfs.
 * Parts that don't exist are kept as they are, or made as folders. Throws RootfsError on link loops and where a file
 * stands in the way.
 */
export async function resolveInRootfs(rootfs: string, path: string, options: { make: boolean }): Promise<string> {
  const rest = path.split("/").filter((part) => part !== "");
  let resolved = "/";
  let links = 0;
  for (let part = rest.shift(); part !== undefined; part = rest.shift()) {
    if (part === ".") continue;
    if (part === "..") {
      resolved = dirname(resolved);
      continue;
    }
    const next = join(resolved, part);
    const stats = await lstatIfThere(join(rootfs, next));
    if (stats?.isSymbolicLink()) {
      links += 1;
      if (links > maxLinks) throw new RootfsError(`${path} is a loop of symbolic links`);
      const target = await readlink(join(rootfs, next));
      if (target.startsWith("/")) resolved = "/";
      rest.unshift(...target.split("/").filter((piece) => piece !== ""));
      continue;
    }
    if (stats && !stats.isDirectory() && (rest.length > 0 || options.make)) {
      throw new RootfsError(`${next} is a file where a folder is needed for ${path}`);
    }
    if (!stats && options.make && !(await madeFolder(join(rootfs, next)))) {
      // several sandboxes of one image start at once: what another one has made is looked at like any other part
      rest.unshift(part);
      continue;
    }
    resolved = next;
  }
  return join(rootfs, resolved);
}

/** @returns false if there is something by now. */
async function madeFolder(path: string): Promise<boolean> {
  try {
    await mkdir(path, { mode: 0o755 });
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EEXIST") return false;
    throw error;
  }
}

/**
 * What is each actor's own but has its place in /etc: links into the identity folder, which is mounted anew at every
 * start and restore. An image's own file of that name is only a placeholder, as in any container engine.
 */
const identityLinks: readonly (readonly [path: string, target: string])[] = [
  ["/etc/hosts", "/run/ate/hosts"],
  ["/etc/resolv.conf", "/run/ate/resolv.conf"],
];

/** Makes the mount points, the working directory and the links to what is each actor's own. Throws RootfsError. */
export async function makeMountPoints(rootfs: string, workingDir: string): Promise<void> {
  for (const [path, mode] of mountPoints) await chmod(await resolveInRootfs(rootfs, path, { make: true }), mode);
  for (const [path, target] of identityLinks) {
    const place = join(await resolveInRootfs(rootfs, dirname(path), { make: true }), basename(path));
    await rm(place, { recursive: true, force: true });
    await symlink(target, place);
  }
  await resolveInRootfs(rootfs, workingDir, { make: true });
}

export interface Inventory {
  files: number;
  bytes: number;
}

/**
 * Counts regular files and their bytes. With `removeDevices`, block and character devices are removed: an image of a
 * stranger could reach this machine's devices by them.
 */
export async function inventory(rootfs: string, options: { removeDevices: boolean }): Promise<Inventory> {
  const sum = { files: 0, bytes: 0 };
  const folders = [rootfs];
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for (const entry of await readdir(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) folders.push(path);
      else if (entry.isFile()) {
        sum.files += 1;
        sum.bytes += (await lstat(path)).size;
      } else if (options.removeDevices && (entry.isBlockDevice() || entry.isCharacterDevice())) await rm(path);
    }
  }
  return sum;
}

/** Fields of the line of a user database that begins with the name, or whose third field is the id. */
async function databaseLine(rootfs: string, path: string, nameOrId: string): Promise<string[] | undefined> {
  const file = await resolveInRootfs(rootfs, path, { make: false });
  const stats = await lstatIfThere(file);
  if (!stats?.isFile()) return undefined;
  if (stats.size > maxDatabaseBytes) throw new RootfsError(`${path} has ${stats.size} bytes`);
  const lines = (await readFile(file, "utf8")).split("\n").map((line) => line.split(":"));
  return lines.find(([name, , id]) => name === nameOrId || id === nameOrId);
}

function idOf(text: string | undefined): number | undefined {
  const id = Number(text);
  return text !== undefined && /^\d+$/.test(text) && id < 2 ** 32 - 1 ? id : undefined;
}

/**
 * The ids of an image's USER: "", user, user:group, each a name of /etc/passwd or /etc/group in the rootfs, or a
 * number. Throws RootfsError for an unknown name.
 */
export async function lookUpUser(rootfs: string, user: string): Promise<{ uid: number; gid: number }> {
  if (user === "") return { uid: 0, gid: 0 };
  const [userPart = "", groupPart] = user.split(":", 2);
  const entry = await databaseLine(rootfs, "/etc/passwd", userPart);
  const uid = idOf(userPart) ?? idOf(entry?.[2]);
  if (uid === undefined) throw new RootfsError(`its user "${userPart}" is not in its /etc/passwd`);
  if (groupPart === undefined) return { uid, gid: idOf(entry?.[3]) ?? 0 };
  const gid = idOf(groupPart) ?? idOf((await databaseLine(rootfs, "/etc/group", groupPart))?.[2]);
  if (gid === undefined) throw new RootfsError(`its group "${groupPart}" is not in its /etc/group`);
  return { uid, gid };
}
