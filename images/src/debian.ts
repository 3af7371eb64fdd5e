import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, lstat, mkdir, readdir, readFile, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { outputBytes, run } from "./program.ts";
import { scriptsOnly } from "./table.ts";

const LISTS = "/var/lib/apt/lists";
const aptFix = "it comes with Debian and Ubuntu; elsewhere name an image with --base";
/** Not needed by a program that nobody reads the manual of; copyright files in /usr/share/doc stay. */
const needless = ["man", "locale", "info", "lintian", "bash-completion", "zsh", "gcc", "gdb", "i18n", "polkit-1"];
/** Debian 12 and later: these are links, which its packages expect. */
const merged = ["bin", "sbin", "lib", "lib64"];

/** A package that is to be unpacked. */
export interface DebianPackage {
  uri: string;
  /** As apt names it in its archive folder. */
  file: string;
}

/** Changes when `apt-get update` fetched something, or other sources were configured. */
async function listsState(): Promise<string> {
  const names = (await readdir(LISTS).catch(() => [])).filter((name) => /Packages|InRelease|_Release/.test(name));
  const entries = await Promise.all(
    names.sort().map(async (name) => {
      const { size, mtimeMs } = await stat(join(LISTS, name));
      return `${name} ${size} ${mtimeMs}`;
    }),
  );
  return entries.join("\n");
}

/** apt's packages by this machine's sources and keys, without a look at what this machine has installed. */
export class DebianPackages {
  readonly #dir: string;

  /** @param dir of the cache; made if missing. */
  constructor(dir: string) {
    this.#dir = dir;
  }

  /**
   * These packages and all that they depend on, in the newest version that apt knows. Remembered until apt's lists
   * change.
   * @throws if apt or its lists are missing, or a package has no candidate.
   */
  async resolve(packages: readonly string[], say: (line: string) => void): Promise<DebianPackage[]> {
    let lists = await listsState();
    if (!lists.includes("Packages")) {
      say("  no package lists yet: apt-get update");
      await run("apt-get", ["-qq", "update"], { fix: aptFix });
      lists = await listsState();
    }
    const key = createHash("sha256")
      .update(JSON.stringify([lists, packages, scriptsOnly]))
      .digest("hex");
    const remembered = join(this.#dir, "resolved", `${key.slice(0, 24)}.json`);
    if (existsSync(remembered)) return JSON.parse(await readFile(remembered, "utf8")) as DebianPackage[];
    const answer = await run("apt-get", ["--print-uris", "-qq", ...(await this.#install(packages))], { fix: aptFix });
    const found = answer
      .split("\n")
      .map((line) => /^'([^']+)' (\S+) \d+/.exec(line))
      .filter((match) => match !== null)
      .map(([, uri = "", file = ""]) => ({ uri, file }))
      .sort((a, b) => (a.file < b.file ? -1 : 1));
    if (found.length === 0) throw new Error(`apt-get finds none of ${packages.join(", ")}: run apt-get update`);
    await mkdir(join(this.#dir, "resolved"), { recursive: true });
    await writeFile(`${remembered}.${process.pid}`, JSON.stringify(found));
    await rename(`${remembered}.${process.pid}`, remembered);
    return found;
  }

  /** Fetches what the cache lacks; apt checks it by the signed lists. */
  async fetch(packages: readonly string[], signal?: AbortSignal): Promise<void> {
    await mkdir(join(this.#archives, "partial"), { recursive: true });
    await run("apt-get", ["-qq", "--download-only", ...(await this.#install(packages))], {
      fix: aptFix,
      signal,
    }).catch((error: unknown) => {
      throw new Error(
        `Debian's packages could not be fetched (run apt-get update if they are gone from the mirror): ` +
          (error instanceof Error ? error.message : String(error)),
        { cause: error },
      );
    });
  }

  get #archives(): string {
    return join(this.#dir, "archives");
  }

  async #install(packages: readonly string[]): Promise<string[]> {
    const status = join(this.#dir, "status");
    await mkdir(this.#dir, { recursive: true });
    const stanzas = scriptsOnly.map(
      (name) =>
        `Package: ${name}\nStatus: install ok installed\nVersion: 999\nArchitecture: amd64\nMulti-Arch: foreign\n` +
        `${name === "debconf" ? "Provides: debconf-2.0\n" : ""}Maintainer: none\nDescription: not needed\n`,
    );
    await writeFile(`${status}.${process.pid}`, stanzas.join("\n"));
    await rename(`${status}.${process.pid}`, status);
    const settings = {
      "Dir::State::status": status,
      "Dir::Cache::archives": this.#archives,
      "APT::Sandbox::User": "root",
      "APT::Architecture": "amd64",
      "Debug::NoLocking": "1",
    };
    const options = Object.entries(settings).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
    return ["install", "-y", "--no-install-recommends", ...options, ...packages];
  }

  /**
   * Lays packages over `root`, whose folders are merged as in Debian 12. Their scripts don't run; nothing stays setuid.
   * What is in it is written down in /var/lib/dpkg/status.d, where image scanners look.
   */
  async unpack(packages: readonly DebianPackage[], root: string): Promise<void> {
    for (const name of merged) {
      await mkdir(join(root, "usr", name), { recursive: true });
      if (!existsSync(join(root, name))) await symlink(`usr/${name}`, join(root, name));
    }
    const records = join(root, "var/lib/dpkg/status.d");
    await mkdir(records, { recursive: true });
    for (const { file } of packages) {
      const path = join(this.#archives, file);
      await this.#extract(path, root);
      await writeFile(join(records, basename(file).replace(/_.*/, "")), await run("dpkg-deb", ["--field", path]));
    }
    for (const name of needless) await rm(join(root, "usr/share", name), { recursive: true, force: true });
    await keepCopyrights(join(root, "usr/share/doc"));
    await rm(join(root, "usr/lib/x86_64-linux-gnu/gconv"), { recursive: true, force: true });
    await dropSetuid(root);
  }

  async #extract(path: string, root: string): Promise<void> {
    const tar = `${path}.${process.pid}.tar`;
    try {
      await writeFile(tar, await outputBytes("dpkg-deb", ["--fsys-tarfile", path]));
      await run("tar", ["-x", "--keep-directory-symlink", "-p", "-C", root, "-f", tar]);
    } finally {
      await rm(tar, { force: true });
    }
  }
}

async function keepCopyrights(doc: string): Promise<void> {
  for (const entry of existsSync(doc) ? await readdir(doc, { withFileTypes: true }) : []) {
    if (!entry.isDirectory()) continue;
    for (const file of await readdir(join(doc, entry.name))) {
      if (file !== "copyright") await rm(join(doc, entry.name, file), { recursive: true });
    }
  }
}

async function dropSetuid(root: string): Promise<void> {
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const { mode } = await lstat(path);
    if ((mode & 0o6000) !== 0) await chmod(path, mode & 0o777);
  }
}
