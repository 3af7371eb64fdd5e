import { mkdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { run } from "./program.ts";

export interface ImageSettings {
  entrypoint: readonly string[];
  user: string;
  env: Readonly<Record<string, string>>;
  labels: Readonly<Record<string, string>>;
  ports: readonly number[];
}

const fix = "install it (apt-get install buildah), or run: node local/setup.mjs --with-cluster";

/** buildah with a storage of its own, so that nothing of a user's images is touched. No daemon, no runtime. */
export class Buildah {
  readonly #dir: string;
  readonly #signal: AbortSignal | undefined;

  constructor(dir: string, signal?: AbortSignal) {
    this.#dir = dir;
    this.#signal = signal;
  }

  #buildah(command: string, ...args: readonly string[]): Promise<string> {
    return this.#buildahIn(undefined, command, ...args);
  }

  async #buildahIn(cwd: string | undefined, command: string, ...args: readonly string[]): Promise<string> {
    await mkdir(this.#dir, { recursive: true });
    const storage = [
      "--storage-driver",
      "vfs",
      "--root",
      join(this.#dir, "storage"),
      "--runroot",
      join(this.#dir, "run"),
    ];
    return (await run("buildah", [...storage, command, ...args], { fix, signal: this.#signal, cwd })).trim();
  }

  /** Name of a new working container made from an image of the storage, or from nothing. */
  from(image: string): Promise<string> {
    return this.#buildah("from", "--quiet", "--pull-never", image);
  }

  /** Gives an image this name alone: an archive would carry its other names too. */
  async rename(image: string, name: string): Promise<void> {
    const names = JSON.parse(await this.#buildah("images", "--json", image)) as { names?: string[] }[];
    await this.#buildah("tag", image, name);
    await this.removeImages(names.flatMap((one) => one.names ?? []).filter((one) => one !== name));
  }

  /** Fetches an image (any reference that buildah knows, oci:/dir as well). @returns its id. */
  async pull(reference: string): Promise<string> {
    const layout = /^oci:(\/.*)$/.exec(reference)?.[1];
    // buildah makes an image's name of the path that it is given, and names are in lower case: a TMPDIR need not be
    const answer =
      layout === undefined
        ? await this.#buildah("pull", "--quiet", reference)
        : await this.#buildahIn(dirname(layout), "pull", "--quiet", `oci:${basename(layout)}`);
    return answer.split("\n").at(-1) ?? "";
  }

  /** Lays a folder's contents over the container's root; they belong to root. */
  async copy(container: string, folder: string, to = "/"): Promise<void> {
    await this.#buildah("copy", "--quiet", "--chown", "0:0", container, folder, to);
  }

  async configure(container: string, settings: ImageSettings): Promise<void> {
    const { entrypoint, user, env, labels, ports } = settings;
    const pairs = (option: string, values: Readonly<Record<string, string>>): string[] =>
      Object.entries(values).flatMap(([name, value]) => [option, `${name}=${value}`]);
    await this.#buildah(
      "config",
      "--entrypoint",
      JSON.stringify(entrypoint),
      "--cmd",
      "",
      "--workingdir",
      "/",
      "--user",
      user,
      ...pairs("--env", env),
      ...pairs("--label", labels),
      ...ports.flatMap((port) => ["--port", String(port)]),
      container,
    );
  }

  /** Makes the container an image; the same contents give the same layers, as all times in them are the epoch. */
  async commit(container: string, image: string): Promise<void> {
    await this.#buildah("commit", "--quiet", "--timestamp", "0", "--rm", container, image);
  }

  /** Path of the container's root. */
  mount(container: string): Promise<string> {
    return this.#buildah("mount", container);
  }

  async remove(container: string): Promise<void> {
    await this.#buildah("rm", container);
  }

  /** Repository and tag of each image of the storage. */
  async images(): Promise<string[]> {
    const answer = await this.#buildah("images", "--format", "{{.Name}}:{{.Tag}}", "--noheading");
    return answer.split("\n").filter((line) => line !== "");
  }

  async removeImages(images: readonly string[]): Promise<void> {
    if (images.length > 0) await this.#buildah("rmi", ...images);
  }

  /** Removes containers that a killed build left. */
  async removeContainers(): Promise<void> {
    const left = (await this.#buildah("containers", "--quiet")).split("\n").filter((line) => line !== "");
    if (left.length > 0) await this.#buildah("rm", ...left);
  }

  /** Writes an image as docker-archive, as `ctr images import` and `crane push` take it. */
  async save(image: string, archive: string, reference: string): Promise<void> {
    await this.#buildah("push", "--quiet", image, `docker-archive:${archive}:${reference}`);
  }
}
