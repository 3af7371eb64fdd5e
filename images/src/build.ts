import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { lock } from "@substrate/local/flock.ts";
import { Buildah } from "./buildah.ts";
import { BuiltImages, type BuiltImage } from "./built.ts";
import { checkoutVersion, writeBundles } from "./bundle.ts";
import { imagesCache } from "./config.ts";
import { DebianPackages } from "./debian.ts";
import { buildExample, exampleKey } from "./examples.ts";
import { keyOf } from "./inputs.ts";
import {
  bundlesKey,
  commonLayer,
  inScratch,
  type Layer,
  nodeLayer,
  packagesLayer,
  removeUnused,
  stack,
  toolsLayer,
} from "./layers.ts";
import {
  BUNDLES,
  commonPackages,
  type ExampleName,
  type ImageName,
  imageNames,
  isPart,
  NODE,
  partImages,
  type PartName,
} from "./table.ts";
import { tryImage } from "./trial.ts";

export type { BuiltImage } from "./built.ts";

export interface BuildOptions {
  /** Default: all. */
  names?: readonly ImageName[];
  /** Default: the version of package.json. */
  tag?: string;
  /** An image to stand on instead of Debian's packages: any reference that buildah can pull. */
  base?: string;
  say?: (line: string) => void;
  signal?: AbortSignal;
}

/** Another build may be fetching packages and compiling. */
const lockWaitMs = 900_000;
const root = join(import.meta.dirname, "../..");

/**
 * Images of the parts and examples as archives in the cache; what is there already is not built again.
 * @throws with the fix, if a tool or package is missing or a part does not start in its image.
 */
export async function buildImages(options: BuildOptions = {}): Promise<BuiltImage[]> {
  const cache = imagesCache();
  await mkdir(cache, { recursive: true });
  const say = options.say ?? (() => undefined);
  const held = await lock(join(cache, "lock"), lockWaitMs, () => {
    say("  another build of images is running: waiting for it");
  });
  try {
    return await new ImageBuild(cache, options, say).build();
  } finally {
    held.release();
  }
}

class ImageBuild {
  readonly #options: BuildOptions;
  readonly #say: (line: string) => void;
  readonly #buildah: Buildah;
  readonly #debian: DebianPackages;
  readonly #built: BuiltImages;
  readonly #usedLayers = new Set<string>();

  constructor(cache: string, options: BuildOptions, say: (line: string) => void) {
    this.#options = options;
    this.#say = say;
    this.#buildah = new Buildah(join(cache, "buildah"), options.signal);
    this.#debian = new DebianPackages(join(cache, "debian"));
    this.#built = new BuiltImages(join(cache, "built"));
  }

  async build(): Promise<BuiltImage[]> {
    const tag = this.#options.tag ?? (await checkoutVersion(root));
    const images: BuiltImage[] = [];
    for (const name of this.#options.names ?? imageNames) {
      this.#options.signal?.throwIfAborted();
      const reference = `substrate/${name}:${tag}`;
      images.push(await (isPart(name) ? this.#part(name, reference, tag) : this.#example(name, reference)));
    }
    if (this.#usedLayers.size > 0) await removeUnused(this.#buildah, this.#usedLayers);
    return images;
  }

  async #part(name: PartName, reference: string, tag: string): Promise<BuiltImage> {
    const { base } = this.#options;
    const baseId = base === undefined ? "scratch" : await this.#buildah.pull(base);
    const layers = await this.#layers(name, base === undefined);
    const key = keyOf(
      baseId,
      layers.map((layer) => layer.key),
      await bundlesKey(root, name),
      reference,
    );
    const found = await this.#built.find(name, key);
    if (found !== undefined) return found;

    this.#say(`building ${reference}`);
    const image = partImages[name];
    await this.#buildah.removeContainers();
    const below = await stack(this.#buildah, baseId, layers, this.#usedLayers, this.#say);
    return this.#built.add(name, key, reference, async (archive) => {
      this.#say("  bundles");
      const final = `docker.io/${reference}`;
      const container = await this.#buildah.from(below);
      await inScratch(async (folder) => {
        await writeBundles(root, image, join(folder, BUNDLES));
        await this.#buildah.copy(container, folder);
      });
      const startMs = await tryImage(await this.#buildah.mount(container), image, base ?? "Debian's packages");
      await this.#buildah.configure(container, {
        entrypoint: [NODE, `${BUNDLES}/${image.main}`],
        user: image.user,
        env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" },
        ports: image.ports,
        labels: {
          "org.opencontainers.image.title": `substrate/${name}`,
          "org.opencontainers.image.description": image.description,
          "org.opencontainers.image.version": tag,
          "org.opencontainers.image.licenses": "Apache-2.0",
          "run.substrate.inputs": key,
        },
      });
      await this.#buildah.commit(container, final);
      await this.#buildah.save(final, archive, reference);
      await this.#buildah.removeImages([final]);
      return { startMs };
    });
  }

  /** From the one that changes least to the one that changes most. */
  async #layers(name: PartName, fromPackages: boolean): Promise<Layer[]> {
    const image = partImages[name];
    const layers: Layer[] = [];
    const common = fromPackages ? await this.#debian.resolve(commonPackages, this.#say) : [];
    if (fromPackages) layers.push(commonLayer(this.#debian, common));
    layers.push(await nodeLayer());
    if (fromPackages && image.packages.length > 0) {
      const inCommon = new Set(common.map(({ file }) => file));
      const all = await this.#debian.resolve([...commonPackages, ...image.packages], this.#say);
      const own = all.filter(({ file }) => !inCommon.has(file));
      layers.push(packagesLayer(this.#debian, image.packages, own));
    }
    if (image.tools.length > 0) layers.push(await toolsLayer(image));
    return layers;
  }

  async #example(name: ExampleName, reference: string): Promise<BuiltImage> {
    const key = keyOf(await exampleKey(root, name), reference);
    const found = await this.#built.find(name, key);
    if (found !== undefined) return found;
    this.#say(`building ${reference}`);
    return this.#built.add(name, key, reference, (archive) =>
      inScratch(async (folder) => {
        const id = await this.#buildah.pull(await buildExample(name, folder));
        const final = `docker.io/${reference}`;
        await this.#buildah.rename(id, final);
        await this.#buildah.save(final, archive, reference);
        await this.#buildah.removeImages([final]);
        return {};
      }),
    );
  }
}
