import { createHash, randomUUID } from "node:crypto";
import { chmod, link, mkdir, open, readdir, readFile, rename, rm, stat, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Copied } from "./copy.ts";
import { Copier, CopyError } from "./copier.ts";
import { Flock } from "./flock.ts";
import { errnoOf, filesBelow, isAbsent, makeFolder, removeEmptyFolders, syncFolder } from "./folder.ts";
import { checkKey, checkPrefix } from "./keys.ts";
import { PathLock } from "./lock.ts";
import { type ObjectStore, type PutCondition, type StoredObject } from "./store.ts";

/** Objects under way and the lock; keys can't begin with ".". */
const temporaryFolder = ".tmp";
const lockFile = ".lock";

/**
 * A writer locks its temporary file at once: one this old and unlocked has no writer any more. (Were it only that slow,
 * its write would fail and be tried again.)
 */
const abandonedAfterMs = 2_000;

/** Below this, an object is written by this thread's own calls. */
const smallBytes = 256 << 10;

const fixes = new Map([
  ["ENOSPC", "free space on that disk"],
  ["EDQUOT", "raise the quota"],
  ["EROFS", "mount it writable"],
  ["EACCES", "give this process access"],
  ["EIO", "check the disk"],
]);

/**
 * A folder as an object store: one file per object. Changes happen under a lock that holds across processes, which
 * makes conditions exact; everything is fsynced before it is acknowledged. An etag is the sha256 of the body.
 */
export class FileStore implements ObjectStore {
  readonly #root: string;
  readonly #identity: string;
  readonly #lock: PathLock;
  readonly #copier = new Copier();
  readonly #flock = new Flock();
  #lookAgain: NodeJS.Timeout | undefined;

  private constructor(root: string, identity: string) {
    this.#root = root;
    this.#identity = identity;
    this.#lock = new PathLock(join(root, lockFile));
  }

  /**
   * Opens the folder, made with mode 0700 if it is missing, and removes what writers that died have left in it.
   * Throws STORE_UNAVAILABLE, or INVALID if others may read it: snapshots hold programs' memory.
   *
   * @param root absolute.
   */
  static async open(root: string): Promise<FileStore> {
    try {
      await mkdir(root, { recursive: true, mode: 0o700 });
      await closeToOthers(root);
      await mkdir(join(root, temporaryFolder), { recursive: true, mode: 0o700 });
      const store = new FileStore(root, await identityOf(root));
      await store.#removeAbandoned();
      return store;
    } catch (error) {
      throw asUnavailable(root, error);
    }
  }

  /** Ends the copying threads; copies under way fail. */
  async close(): Promise<void> {
    clearTimeout(this.#lookAgain);
    await this.#copier.close();
  }

  async get(key: string): Promise<StoredObject | undefined> {
    return this.#at(checkKey(key), read);
  }

  async put(key: string, body: Buffer, condition?: PutCondition): Promise<string | undefined> {
    return this.#at(checkKey(key), async (path) => {
      const temporary = this.#temporary();
      const file = await open(temporary, "wx", 0o600);
      try {
        this.#flock.try(file.fd);
        await file.writeFile(body);
        await file.sync();
        return (await this.#place(temporary, path, condition)) ? etagOf(body) : undefined;
      } finally {
        await file.close();
        await rm(temporary, { force: true });
      }
    });
  }

  async putFile(key: string, source: string): Promise<Copied> {
    return this.#at(checkKey(key), async (path) => {
      const temporary = this.#temporary();
      try {
        const copied = await this.#copier.copy(source, temporary, { durable: true });
        await this.#place(temporary, path);
        return copied;
      } catch (error) {
        if (!(error instanceof CopyError) || error.side === "to") throw error;
        throw new SubstrateError("INTERNAL", `reading ${source} for ${key}: ${error.message}`, { cause: error });
      } finally {
        await rm(temporary, { force: true });
      }
    });
  }

  async putBytes(key: string, bytes: ArrayBuffer, lengthBytes = bytes.byteLength): Promise<ArrayBuffer> {
    if (lengthBytes <= smallBytes) {
      await this.put(key, Buffer.from(bytes, 0, lengthBytes));
      return bytes;
    }
    return this.#at(checkKey(key), async (path) => {
      const temporary = this.#temporary();
      try {
        const memory = await this.#copier.write(bytes, lengthBytes, temporary);
        await this.#place(temporary, path);
        return memory;
      } finally {
        await rm(temporary, { force: true });
      }
    });
  }

  async getRange(
    key: string,
    offset: number,
    lengthBytes: number,
    into = new ArrayBuffer(lengthBytes),
  ): Promise<ArrayBuffer> {
    return this.#at(checkKey(key), async (path) => {
      const found = await this.#copier.read(path, offset, lengthBytes, into).catch((error: unknown) => {
        if (!isAbsent(error)) throw error;
        throw new SubstrateError("SNAPSHOT_DAMAGED", `${key} is missing from the store ${this.#root}`);
      });
      if (found.bytes === lengthBytes) return found.memory;
      throw new SubstrateError(
        "SNAPSHOT_DAMAGED",
        `${key} in the store ${this.#root} is damaged: it ends at ${offset + found.bytes} bytes, ` +
          `${offset + lengthBytes} are needed`,
      );
    });
  }

  async getFile(key: string, target: string, expected: Copied): Promise<void> {
    return this.#at(checkKey(key), async (path) => {
      const copied = await this.#copier.copy(path, target, { durable: false }).catch((error: unknown) => {
        if (!(error instanceof CopyError)) throw error;
        if (error.side === "to") {
          const full = ["ENOSPC", "EDQUOT"].includes(error.code);
          throw new SubstrateError(
            full ? "NO_ROOM" : "INTERNAL",
            `writing ${target}: ${error.message}${fixOf(error)}`,
            { cause: error },
          );
        }
        if (!isAbsent(error)) throw error;
        throw new SubstrateError("SNAPSHOT_DAMAGED", `${key} is missing from the store ${this.#root}`);
      });
      if (copied.sizeBytes === expected.sizeBytes && copied.sha256 === expected.sha256) return;
      await rm(target, { force: true });
      throw new SubstrateError(
        "SNAPSHOT_DAMAGED",
        `${key} in the store ${this.#root} is damaged: it has ${copied.sizeBytes} bytes and sha256 ${copied.sha256}, ` +
          `written were ${expected.sizeBytes} and ${expected.sha256}`,
      );
    });
  }

  async copy(from: string, to: string): Promise<void> {
    return this.#at(checkKey(from), async (source) => {
      const target = join(this.#root, checkKey(to));
      if (!(await this.#link(source, target))) await this.#copyTo(source, target);
    }).catch((error: unknown) => {
      const cause = error instanceof SubstrateError ? error.cause : error;
      if (!isAbsent(cause)) throw error;
      throw new SubstrateError("SNAPSHOT_DAMAGED", `${from} is missing from the store ${this.#root}`, { cause });
    });
  }

  /** One more name for the same file. @returns false where that cannot be: another file is there, or too many links. */
  async #link(source: string, target: string): Promise<boolean> {
    const changed = await this.#lock.hold(async () => {
      const made = await makeFolder(dirname(target));
      try {
        await link(source, target);
      } catch (error) {
        if (isAbsent(error)) await removeEmptyFolders(dirname(target), this.#root);
        if (!["EEXIST", "EMLINK", "EPERM", "ENOTSUP"].includes(errnoOf(error))) throw error;
        if (errnoOf(error) !== "EEXIST" || !(await sameFile(source, target))) return undefined;
      }
      return [dirname(target), ...made];
    });
    for (const folder of changed ?? []) await syncFolder(folder);
    return changed !== undefined;
  }

  async #copyTo(source: string, target: string): Promise<void> {
    const temporary = this.#temporary();
    try {
      await this.#copier.copy(source, temporary, { durable: true });
      await this.#place(temporary, target);
    } finally {
      await rm(temporary, { force: true });
    }
  }

  async list(prefix: string): Promise<string[]> {
    return this.#at(checkPrefix(prefix), async (folder) => {
      const keys = [];
      for await (const path of filesBelow(folder)) keys.push(path.slice(this.#root.length + 1));
      return keys.filter((key) => !key.startsWith(".")).sort();
    });
  }

  async delete(key: string): Promise<void> {
    return this.#at(checkKey(key), async (path) => {
      const changed = await this.#lock.hold(async () => {
        try {
          await unlink(path);
        } catch (error) {
          // removed by one that was killed before it came to the folder, perhaps
          if (!isAbsent(error)) throw error;
        }
        // not the store itself, where every cluster has a folder
        return dirname(path) === this.#root ? this.#root : removeEmptyFolders(dirname(path), this.#root);
      });
      await syncFolder(changed);
    });
  }

  async deleteAll(keys: readonly string[]): Promise<void> {
    for (const key of keys) await this.delete(key);
  }

  /** Runs `action` on a key's path. An empty mount point would look like deleted snapshots: it is an error. */
  async #at<T>(key: string, action: (path: string) => Promise<T>): Promise<T> {
    const path = join(this.#root, key);
    try {
      if ((await identityOf(this.#root)) !== this.#identity) {
        const message = `the store ${this.#root} was unmounted or replaced: mount it again, or restart the atelet`;
        throw new SubstrateError("STORE_UNAVAILABLE", message);
      }
      return await action(path);
    } catch (error) {
      throw asUnavailable(path, error);
    }
  }

  #temporary(): string {
    return join(this.#root, temporaryFolder, randomUUID());
  }

  /**
   * Renames a synced file to its place, if the condition holds. The folders are synced after the lock, so that nobody
   * waits for the disk's journal: whoever reads the new body and writes on top of it syncs the same folder.
   */
  async #place(temporary: string, path: string, condition?: PutCondition): Promise<boolean> {
    const changed = await this.#lock.hold(async () => {
      if (condition && !(await holds(path, condition))) return undefined;
      const made = await makeFolder(dirname(path));
      await rename(temporary, path);
      return [dirname(path), ...made];
    });
    for (const folder of changed ?? []) await syncFolder(folder);
    return changed !== undefined;
  }

  /** A writer that was killed a moment ago, as ours before a restart, is told from a living one a little later. */
  async #removeAbandoned(): Promise<void> {
    let young = false;
    for await (const path of filesBelow(join(this.#root, temporaryFolder))) {
      const file = await open(path, "r").catch((error: unknown) => {
        if (isAbsent(error)) return undefined;
        throw error;
      });
      if (!file) continue;
      try {
        if (Date.now() - (await file.stat()).mtimeMs <= abandonedAfterMs) young = true;
        else if (this.#flock.try(file.fd)) await rm(path, { force: true });
      } finally {
        await file.close();
      }
    }
    if (!young) return;
    this.#lookAgain = setTimeout(() => {
      // if the folder cannot be read now, the next start looks again
      this.#removeAbandoned().catch(() => undefined);
    }, abandonedAfterMs).unref();
  }
}

function etagOf(body: Buffer): string {
  return createHash("sha256").update(body).digest("hex");
}

async function closeToOthers(root: string): Promise<void> {
  const { mode } = await stat(root);
  if ((mode & 0o077) === 0) return;
  if ((await readdir(root)).length === 0) return chmod(root, 0o700);
  const message = `the store ${root} may be read by others, and snapshots hold programs' memory: chmod 700 ${root}`;
  throw new SubstrateError("INVALID", message);
}

async function sameFile(a: string, b: string): Promise<boolean> {
  return (await identityOf(a)) === (await identityOf(b));
}

async function identityOf(root: string): Promise<string> {
  const { dev, ino } = await stat(root, { bigint: true });
  return `${dev}:${ino}`;
}

async function read(path: string): Promise<StoredObject | undefined> {
  try {
    const body = await readFile(path);
    return { body, etag: etagOf(body) };
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw error;
  }
}

async function holds(path: string, condition: PutCondition): Promise<boolean> {
  const present = await read(path);
  return "ifMatch" in condition ? present?.etag === condition.ifMatch : present === undefined;
}

function fixOf(error: unknown): string {
  const fix = fixes.get(errnoOf(error));
  return fix === undefined ? "" : `: ${fix}`;
}

function asUnavailable(path: string, error: unknown): unknown {
  if (errnoOf(error) === "" || error instanceof SubstrateError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new SubstrateError("STORE_UNAVAILABLE", `${path} in the store: ${message}${fixOf(error)}`, { cause: error });
}
