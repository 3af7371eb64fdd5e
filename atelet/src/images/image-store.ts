import { randomUUID } from "node:crypto";
import { mkdir, readdir, readFile, rename } from "node:fs/promises";
import { join } from "node:path";
import pLimit from "p-limit";
import { z } from "zod";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type DiskClaim } from "../disk/contract.ts";
import { type Removable } from "../disk/removal.ts";
import { readJson, removeFolder, writeJson } from "../node-files.ts";
import { type Images, type UnpackedImage } from "./images.ts";
import { layoutTag, readLayout, umociLayout, type LayoutImage } from "./layout.ts";
import { ProgramError, runProgram } from "./program.ts";
import { parseReference, type ImageReference } from "./reference.ts";
import { readRegistryConfig } from "./registry-config.ts";
import { Registry, type RegistryOptions } from "./registry.ts";
import { inventory, lookUpUser, makeMountPoints, RootfsError } from "./rootfs.ts";

export interface ImageStoreOptions extends RegistryOptions {
  /** Absolute; images go to `<dir>/images/`, where only this process writes. */
  dir: string;
  /** Absolute path of umoci. */
  umoci: string;
  /** Whether oci:/abs/dir@sha256:… may be used. */
  allowLocalImages: boolean;
  /** Space on the disk for what is to be pulled and unpacked. Throws NO_ROOM. */
  claim: (bytes: number, what: string) => Promise<DiskClaim>;
  /** As du does. */
  bytesBelow: (dir: string) => Promise<number>;
  log: Logger;
}

/** image.json beside an image's rootfs. */
const recordSchema = z.object({
  digest: z.string(),
  entrypoint: z.array(z.string()),
  cmd: z.array(z.string()),
  env: z.array(z.string()),
  workingDir: z.string(),
  uid: z.int(),
  gid: z.int(),
  inventory: z.object({ files: z.int(), bytes: z.int() }),
  /** The boot under which the files were last known to be whole: nothing of an image is fsynced. */
  bootId: z.string(),
});

const recordFile = "image.json";
const rootfsFolder = "rootfs";
const temporaryFolder = ".tmp";

/** For the largest images on a slow disk. */
const unpackTimeoutMs = 600_000;

/** Pulls and unpacks at once; more only share one disk and one link. */
const parallel = 2;

const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** Images pulled by digest and unpacked once per digest into `<dir>/images/<hex of the digest>/rootfs`. */
export class ImageStore implements Images {
  readonly #folder: string;
  readonly #options: ImageStoreOptions;
  readonly #registry: Registry;
  readonly #bootId: string;
  readonly #known = new Map<string, UnpackedImage>();
  readonly #underWay = new Map<string, Promise<UnpackedImage>>();
  readonly #limit = pLimit(parallel);
  /** When each image here was asked for, at the latest when this process found it. */
  readonly #usedMs: Map<string, number>;
  #looking = 0;

  private constructor(options: ImageStoreOptions, own: { folder: string; bootId: string; found: string[] }) {
    this.#options = options;
    this.#folder = own.folder;
    this.#bootId = own.bootId;
    this.#usedMs = new Map(own.found.map((digest) => [digest, performance.now()]));
    this.#registry = new Registry(options);
  }

  /**
   * Opens the folder, made if it is missing, and removes what an earlier process did not finish. Throws
   * IMAGE_UNAVAILABLE if the registries' configuration is wrong.
   */
  static async open(options: ImageStoreOptions): Promise<ImageStore> {
    if (options.registryConfigPath !== undefined) await readRegistryConfig(options.registryConfigPath);
    const folder = join(options.dir, "images");
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await removeFolder(join(folder, temporaryFolder));
    await mkdir(join(folder, temporaryFolder));
    const bootId = (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
    const found = (await readdir(folder)).filter((name) => /^[0-9a-f]{64}$/.test(name)).map((hex) => `sha256:${hex}`);
    return new ImageStore(options, { folder, bootId, found });
  }

  async ensure(reference: string): Promise<UnpackedImage> {
    const parsed = parseReference(reference);
    if (parsed.kind === "layout" && !this.#options.allowLocalImages) {
      const fix = "push the image to a registry, or start the atelet with --allow-local-images";
      throw new SubstrateError(
        "IMAGE_INVALID",
        `image ${reference} is a folder, which this node does not allow: ${fix}`,
      );
    }
    const local = parsed.digest === undefined ? undefined : await this.local(parsed.digest);
    return local ?? this.#once(reference, () => this.#fetch(parsed));
  }

  async local(digest: string): Promise<UnpackedImage | undefined> {
    const known = this.#known.get(digest);
    if (known) {
      this.#usedMs.set(known.digest, performance.now());
      return known;
    }
    this.#looking += 1;
    try {
      const image = (await this.#load(digest)) ?? (await this.#loadByIndex(digest));
      if (image) this.#known.set(digest, image);
      if (image) this.#usedMs.set(image.digest, performance.now());
      return image;
    } finally {
      this.#looking -= 1;
    }
  }

  /** Images that nobody has asked for in so long; what is asked for again is pulled again. */
  removables(isInUse: (image: { digest: string; dir: string }) => boolean, minUnusedMs: number): Removable[] {
    const mayGo = (digest: string): boolean =>
      performance.now() - (this.#usedMs.get(digest) ?? Infinity) >= minUnusedMs &&
      this.#looking === 0 &&
      this.#underWay.size === 0 &&
      !isInUse({ digest, dir: this.#path(digest) });
    return [...this.#usedMs]
      .filter(([digest]) => mayGo(digest))
      .sort(([, one], [, other]) => one - other)
      .map(([digest]) => ({
        kind: "image",
        name: digest,
        bytes: () => this.#options.bytesBelow(this.#path(digest)),
        remove: async () => {
          if (!mayGo(digest)) return false;
          this.#usedMs.delete(digest);
          for (const [key, image] of this.#known) if (image.digest === digest) this.#known.delete(key);
          const doomed = join(this.#folder, temporaryFolder, randomUUID());
          await rename(this.#path(digest), doomed);
          await removeFolder(doomed);
          return true;
        },
      }));
  }

  /** Joins callers that want the same. */
  #once(key: string, work: () => Promise<UnpackedImage>): Promise<UnpackedImage> {
    const running = this.#underWay.get(key);
    if (running) return running;
    const started = work().finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, started);
    return started;
  }

  async #fetch(wanted: ImageReference): Promise<UnpackedImage> {
    const { reference } = wanted;
    if (wanted.kind === "layout") {
      const image = await readLayout(reference, wanted.dir, wanted.digest);
      await this.#recordIndex(wanted.digest, image.digest);
      return this.#unpacked(image.digest, (temporary) =>
        this.#inRoom(reference, layersBytes(image), () => this.#unpack(reference, wanted.dir, image, temporary)),
      );
    }
    const digest = await this.#registry.resolve(reference);
    await this.#recordIndex(wanted.digest, digest);
    return this.#unpacked(digest, async (temporary) => {
      const pinned = `${wanted.repository}@${digest}`;
      // What is pulled and what is unpacked, which is at least as large, exist at once.
      return this.#inRoom(reference, 2 * (await this.#registry.layersBytes(pinned)), async () => {
        const layout = join(temporary, "pulled");
        await this.#registry.pull(pinned, layout);
        return this.#unpack(reference, layout, await readLayout(reference, layout, digest), temporary);
      });
    });
  }

  /** The image with this digest of a manifest, made by `make` in a temporary folder if it isn't here. */
  async #unpacked(digest: string, make: (temporary: string) => Promise<string>): Promise<UnpackedImage> {
    const work = () =>
      this.#limit(async () => {
        const temporary = join(this.#folder, temporaryFolder, randomUUID());
        await mkdir(temporary);
        try {
          const made = await make(temporary);
          await removeFolder(this.#path(digest)); // remains of a removal that was cut off
          await rename(made, this.#path(digest));
        } finally {
          await removeFolder(temporary);
        }
        const image = await this.local(digest);
        if (image) return image;
        throw new SubstrateError("INTERNAL", `${this.#path(digest)} vanished while it was made`);
      });
    return (await this.local(digest)) ?? this.#once(digest, work);
  }

  /** @returns a folder in `temporary` that is complete. */
  async #unpack(reference: string, layout: string, image: LayoutImage, temporary: string): Promise<string> {
    const startedAt = performance.now();
    const { Entrypoint, Cmd, Env, User, WorkingDir } = image.config;
    const made = join(temporary, "image");
    const rootfs = join(made, rootfsFolder);
    await mkdir(made);
    await umociLayout(reference, layout, image, join(temporary, "layout"));
    // Relative paths, as umoci splits at a colon.
    const args = ["raw", "unpack", "--image", `layout:${layoutTag}`, join("image", rootfsFolder)];
    try {
      await runProgram(this.#options.umoci, args, { cwd: temporary, timeoutMs: unpackTimeoutMs });
      const workingDir = WorkingDir === "" ? "/" : WorkingDir;
      await makeMountPoints(rootfs, workingDir);
      const contents = await inventory(rootfs, { removeDevices: true });
      const record: z.infer<typeof recordSchema> = {
        digest: image.digest,
        entrypoint: Entrypoint,
        cmd: Cmd,
        env: Env.some((variable) => variable.startsWith("PATH=")) ? Env : [defaultPath, ...Env],
        workingDir,
        ...(await lookUpUser(rootfs, User)),
        inventory: contents,
        bootId: this.#bootId,
      };
      await writeJson(join(made, recordFile), record, { durable: false });
      const unpackMs = Math.round(performance.now() - startedAt);
      this.#options.log.info("image unpacked", { image: reference, digest: image.digest, ...contents, unpackMs });
    } catch (error) {
      throw explained(reference, error);
    }
    return made;
  }

  async #inRoom<T>(reference: string, bytes: number, work: () => Promise<T>): Promise<T> {
    const claim = await this.#options.claim(bytes, `image ${reference}`);
    try {
      return await work();
    } finally {
      claim.end();
    }
  }

  #path(digest: string): string {
    return join(this.#folder, digest.slice("sha256:".length));
  }

  async #load(digest: string): Promise<UnpackedImage | undefined> {
    const folder = this.#path(digest);
    const json = await readIfWhole(join(folder, recordFile));
    if (json === undefined) return undefined;
    const record = recordSchema.safeParse(json);
    const rootfsDir = join(folder, rootfsFolder);
    if (!record.success || !(await this.#isWhole(folder, record.data))) {
      this.#options.log.warn("image is incomplete, as after a power cut; it will be unpacked again", { digest });
      await removeFolder(folder);
      return undefined;
    }
    const { entrypoint, cmd, env, workingDir, uid, gid } = record.data;
    return { digest, rootfsDir, entrypoint, cmd, env, workingDir, uid, gid };
  }

  /** After a crash of the machine, files that had not reached the disk are short or missing. */
  async #isWhole(folder: string, record: z.infer<typeof recordSchema>): Promise<boolean> {
    if (record.bootId === this.#bootId) return true;
    const found = await inventory(join(folder, rootfsFolder), { removeDevices: false });
    if (found.files !== record.inventory.files || found.bytes !== record.inventory.bytes) return false;
    await writeJson(join(folder, recordFile), { ...record, bootId: this.#bootId }, { durable: false });
    return true;
  }

  /** Remembers which manifest an index has for this platform, so that a reference by index needs no registry again. */
  async #recordIndex(index: string | undefined, digest: string): Promise<void> {
    if (index !== undefined && index !== digest) await writeJson(this.#indexPath(index), digest, { durable: false });
  }

  async #loadByIndex(index: string): Promise<UnpackedImage | undefined> {
    const digest = z
      .string()
      .optional()
      .parse(await readJson(this.#indexPath(index)));
    return digest === undefined ? undefined : this.#load(digest);
  }

  #indexPath(index: string): string {
    return `${this.#path(index)}.index.json`;
  }
}

/** A power cut may leave an empty file: as good as none, the registry still has the image. */
async function readIfWhole(path: string): Promise<unknown> {
  try {
    return await readJson(path);
  } catch (error) {
    if (error instanceof Error && error.cause instanceof SyntaxError) return undefined;
    throw error;
  }
}

function layersBytes(image: LayoutImage): number {
  return image.manifest.layers.reduce((sum, { size }) => sum + size, 0);
}

function explained(reference: string, error: unknown): unknown {
  if (error instanceof RootfsError) {
    return new SubstrateError("IMAGE_INVALID", `image ${reference}: ${error.message}`, { cause: error });
  }
  if (!(error instanceof ProgramError)) return error;
  if (error.timedOut || error.stderr.includes("no space left on device")) {
    const message = `image ${reference}: ${error.message}; free space on the node's disk, or check it`;
    return new SubstrateError("IMAGE_UNAVAILABLE", message, { cause: error });
  }
  const message = `image ${reference} can't be unpacked: ${error.message}; build it again`;
  return new SubstrateError("IMAGE_INVALID", message, { cause: error });
}
