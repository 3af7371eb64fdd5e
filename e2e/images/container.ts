import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

interface SavedImage {
  Config: string;
  Layers: string[];
}

export interface UnpackedImage {
  rootfs: string;
  config: { User: string; Entrypoint: string[]; Env: string[]; Labels: Record<string, string> };
  tags: string[];
}

/** Unpacks a docker-archive that only adds files. */
export async function unpack(archive: string, folder: string): Promise<UnpackedImage> {
  const files = join(folder, "archive");
  const rootfs = join(folder, "rootfs");
  await mkdir(files, { recursive: true });
  await mkdir(rootfs);
  await run("tar", ["-x", "-f", archive, "-C", files]);
  const [saved] = JSON.parse(await readFile(join(files, "manifest.json"), "utf8")) as [
    SavedImage & { RepoTags: string[] },
  ];
  for (const layer of saved.Layers) {
    await run("tar", ["-x", "-p", "--keep-directory-symlink", "-f", join(files, layer), "-C", rootfs]);
  }
  const { config } = JSON.parse(await readFile(join(files, saved.Config), "utf8")) as Pick<UnpackedImage, "config">;
  await rm(files, { recursive: true });
  return { rootfs, config, tags: saved.RepoTags };
}

export interface ContainerOptions {
  image: UnpackedImage;
  /** After the image's entrypoint; or instead of it, with `instead`. */
  args: readonly string[];
  instead?: boolean;
  /** Folders of this machine at the same path, read-only. */
  folders?: readonly string[];
  capabilities?: readonly string[];
  /** Default false: the machine's network. */
  ownNetwork?: boolean;
}

/** A program of an image under runc as a kubelet would start it: its user, a read-only root, /tmp and nothing more. */
export class Container {
  readonly #id: string;
  readonly #bundle: string;
  readonly #child: ChildProcess;
  readonly #exit: Promise<unknown>;
  output = "";

  private constructor(id: string, bundle: string) {
    this.#id = id;
    this.#bundle = bundle;
    this.#child = spawn("runc", ["run", "--bundle", bundle, id], { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.on("data", (text: Buffer) => (this.output += text.toString()));
    }
    this.#exit = once(this.#child, "close");
  }

  static async start(folder: string, options: ContainerOptions): Promise<Container> {
    const id = `substrate-image-${randomUUID()}`;
    const bundle = join(folder, id);
    await mkdir(bundle);
    await writeFile(join(bundle, "config.json"), JSON.stringify(spec(id, options)));
    return new Container(id, bundle);
  }

  /** The container's first process as the machine sees it. */
  async pid(): Promise<number> {
    const { stdout } = await run("runc", ["state", this.#id]);
    return (JSON.parse(stdout) as { pid: number }).pid;
  }

  /** The exit code, once it has ended by itself or by `signal`. */
  async end(signal?: "TERM" | "KILL"): Promise<number | null> {
    if (signal !== undefined && this.#child.exitCode === null) await run("runc", ["kill", this.#id, signal]);
    await this.#exit;
    return this.#child.exitCode;
  }

  async remove(): Promise<void> {
    await run("runc", ["delete", "--force", this.#id]);
    await this.#exit;
    await rm(this.#bundle, { recursive: true, force: true });
  }
}

function spec(id: string, options: ContainerOptions): unknown {
  const { image, args, instead = false, folders = [], capabilities = [], ownNetwork = false } = options;
  const [uid, gid] = image.config.User.split(":").map(Number);
  const sets = ["bounding", "effective", "permitted"].map((set) => [set, capabilities]);
  return {
    ociVersion: "1.0.2",
    process: {
      user: { uid, gid },
      args: [...(instead ? [] : image.config.Entrypoint), ...args],
      env: image.config.Env,
      cwd: "/",
      capabilities: Object.fromEntries(sets) as unknown,
      noNewPrivileges: true,
    },
    root: { path: image.rootfs, readonly: true },
    mounts: [
      { destination: "/proc", type: "proc", source: "proc" },
      { destination: "/dev", type: "tmpfs", source: "tmpfs", options: ["nosuid", "mode=755", "size=64k"] },
      { destination: "/tmp", type: "tmpfs", source: "tmpfs", options: ["nosuid", "nodev", "mode=1777", "size=16m"] },
      ...folders.map((path) => ({ destination: path, type: "bind", source: path, options: ["rbind", "ro"] })),
    ],
    linux: {
      cgroupsPath: `/${id}`,
      namespaces: [
        { type: "pid" },
        { type: "ipc" },
        { type: "uts" },
        { type: "mount" },
        ...(ownNetwork ? [{ type: "network" }] : []),
      ],
    },
  };
}
