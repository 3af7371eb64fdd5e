import { createHash, randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, rename, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { type Header, type Pack, pack } from "tar-stream";

/** One entry of an image's only layer. Paths are absolute inside the image; parent folders are made with mode 0755. */
export type ImageFile =
  | { path: string; mode: number; source: string }
  | { path: string; mode: number; content: string | Buffer }
  | { path: string; mode: number; folder: true }
  | { path: string; linkTo: string };

export interface ImageConfig {
  entrypoint?: readonly string[];
  cmd?: readonly string[];
  env?: readonly string[];
  workingDir?: string;
  user?: string;
  /** As in an image's configuration: "8080/tcp". */
  exposedPorts?: readonly string[];
  /** Default amd64. */
  architecture?: string;
}

export interface OciLayout {
  /** "oci:/abs/dir@sha256:…" */
  reference: string;
  /** "sha256:…" of the image's manifest. */
  digest: string;
}

export interface BuiltLayout extends OciLayout {
  /** Of the only layer. */
  layerBytes: number;
}

interface Descriptor {
  mediaType: string;
  digest: string;
  size: number;
}

export const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const epoch = new Date(0);

function parents(path: string): string[] {
  const all: string[] = [];
  for (let dir = dirname(path); dir !== "/" && dir !== "."; dir = dirname(dir)) all.unshift(dir);
  return all;
}

/** Resolves when the entry is written; a file that changes its size meanwhile is an error. */
async function addFromDisk(
  tar: Pack,
  header: Pick<Header, "name" | "mode" | "mtime" | "uid" | "gid">,
  source: string,
): Promise<void> {
  const { size } = await stat(source);
  await pipeline(createReadStream(source), tar.entry({ ...header, type: "file", size }));
}

/** Entries in an order and with owners and times that depend on nothing else: the same files give the same bytes. */
async function fill(tar: Pack, files: readonly ImageFile[]): Promise<void> {
  const common = { mtime: epoch, uid: 0, gid: 0 };
  const sorted = files.toSorted((a, b) => (a.path < b.path ? -1 : 1));
  const folders = new Map(sorted.flatMap((file) => parents(file.path)).map((path) => [path, 0o755]));
  for (const file of sorted) if ("folder" in file) folders.set(file.path, file.mode);
  for (const [path, mode] of [...folders].sort(([a], [b]) => (a < b ? -1 : 1)))
    tar.entry({ ...common, name: `${path.slice(1)}/`, type: "directory", mode });
  for (const file of sorted) {
    const name = file.path.slice(1);
    if ("linkTo" in file) tar.entry({ ...common, name, type: "symlink", mode: 0o777, linkname: file.linkTo });
    else if ("source" in file) await addFromDisk(tar, { ...common, name, mode: file.mode }, file.source);
    else if ("content" in file)
      tar.entry({ ...common, name, type: "file", mode: file.mode }, Buffer.from(file.content));
  }
  tar.finalize();
}

/** Writes the layer's tar, however large, under its digest. */
async function layerBlob(outDir: string, files: readonly ImageFile[]): Promise<Descriptor> {
  const tar = pack();
  const filling = fill(tar, files).catch((error: unknown) => {
    tar.destroy(error instanceof Error ? error : new Error(String(error)));
    throw error;
  });
  const hash = createHash("sha256");
  let size = 0;
  const temporary = join(outDir, "blobs", "sha256", `${randomUUID()}.tmp`);
  const write = async (): Promise<void> => {
    await using file = await open(temporary, "w");
    for await (const chunk of tar as AsyncIterable<Buffer>) {
      hash.update(chunk);
      size += chunk.length;
      await file.writeFile(chunk);
    }
  };
  try {
    await Promise.all([filling, write()]);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  const hex = hash.digest("hex");
  await rename(temporary, join(outDir, "blobs", "sha256", hex));
  return { mediaType: "application/vnd.oci.image.layer.v1.tar", digest: `sha256:${hex}`, size };
}

/** Readers of the layout never see half a file. */
async function replace(path: string, bytes: string): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`;
  await writeFile(temporary, bytes);
  await rename(temporary, path);
}

async function jsonBlob(outDir: string, mediaType: string, value: unknown): Promise<Descriptor> {
  const text = JSON.stringify(value);
  const hex = createHash("sha256").update(text).digest("hex");
  await replace(join(outDir, "blobs", "sha256", hex), text);
  return { mediaType, digest: `sha256:${hex}`, size: Buffer.byteLength(text) };
}

/**
 * Writes an OCI image layout with one linux image of one uncompressed layer from local files, without a registry. The
 * same input gives the same bytes. An earlier image in the folder stays addressable by its digest.
 *
 * @param image.name becomes the annotation org.opencontainers.image.ref.name.
 * @param image.outDir absolute; made if missing.
 */
export async function buildOciLayout(image: {
  name: string;
  files: readonly ImageFile[];
  config: ImageConfig;
  outDir: string;
}): Promise<BuiltLayout> {
  const { outDir, config } = image;
  await mkdir(join(outDir, "blobs", "sha256"), { recursive: true });
  const layer = await layerBlob(outDir, image.files);
  const configJson = {
    created: epoch.toISOString(),
    architecture: config.architecture ?? "amd64",
    os: "linux",
    config: {
      Env: config.env ?? [`PATH=${DEFAULT_PATH}`],
      ...(config.entrypoint ? { Entrypoint: config.entrypoint } : {}),
      ...(config.cmd ? { Cmd: config.cmd } : {}),
      ...(config.user ? { User: config.user } : {}),
      WorkingDir: config.workingDir ?? "/",
      ...(config.exposedPorts ? { ExposedPorts: Object.fromEntries(config.exposedPorts.map((p) => [p, {}])) } : {}),
    },
    rootfs: { type: "layers", diff_ids: [layer.digest] },
    history: [{ created: epoch.toISOString(), created_by: `buildOciLayout ${image.name}` }],
  };
  const configBlob = await jsonBlob(outDir, "application/vnd.oci.image.config.v1+json", configJson);
  const mediaType = "application/vnd.oci.image.manifest.v1+json";
  const manifest = { schemaVersion: 2, mediaType, config: configBlob, layers: [layer] };
  const manifestBlob = await jsonBlob(outDir, mediaType, manifest);
  await replace(join(outDir, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
  const annotations = { "org.opencontainers.image.ref.name": image.name };
  const index = { schemaVersion: 2, manifests: [{ ...manifestBlob, annotations }] };
  await replace(join(outDir, "index.json"), JSON.stringify(index));
  const { digest } = manifestBlob;
  return { reference: `oci:${outDir}@${digest}`, digest, layerBytes: layer.size };
}
