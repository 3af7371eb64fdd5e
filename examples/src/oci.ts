import { createHash } from "node:crypto";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { buffer } from "node:stream/consumers";
import { pack } from "tar-stream";

/** One entry of an image's only layer. Paths are absolute inside the image; parent folders are made with mode 0755. */
export type ImageFile =
  | { path: string; mode: number; source: string }
  | { path: string; mode: number; content: string | Buffer }
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

interface Descriptor {
  mediaType: string;
  digest: string;
  size: number;
}

const epoch = new Date(0);

function parents(path: string): string[] {
  const all: string[] = [];
  for (let dir = dirname(path); dir !== "/" && dir !== "."; dir = dirname(dir)) all.unshift(dir);
  return all;
}

/** A tar with the same bytes for the same files: sorted, owned by root, times at 0. */
async function layer(files: readonly ImageFile[]): Promise<Buffer> {
  const tar = pack();
  const bytes = buffer(tar);
  const common = { mtime: epoch, uid: 0, gid: 0 };
  const sorted = files.toSorted((a, b) => (a.path < b.path ? -1 : 1));
  const dirs = new Set(sorted.flatMap((file) => parents(file.path)));
  for (const dir of [...dirs].sort())
    tar.entry({ ...common, name: `${dir.slice(1)}/`, type: "directory", mode: 0o755 });
  for (const file of sorted) {
    const name = file.path.slice(1);
    if ("linkTo" in file) tar.entry({ ...common, name, type: "symlink", mode: 0o777, linkname: file.linkTo });
    else {
      const content = "source" in file ? await readFile(file.source) : Buffer.from(file.content);
      tar.entry({ ...common, name, type: "file", mode: file.mode }, content);
    }
  }
  tar.finalize();
  return bytes;
}

/** Readers of the layout never see half a file. */
async function replace(path: string, bytes: Buffer | string): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`;
  await writeFile(temporary, bytes);
  await rename(temporary, path);
}

async function blob(outDir: string, mediaType: string, bytes: Buffer): Promise<Descriptor> {
  const hex = createHash("sha256").update(bytes).digest("hex");
  await replace(join(outDir, "blobs", "sha256", hex), bytes);
  return { mediaType, digest: `sha256:${hex}`, size: bytes.length };
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
}): Promise<OciLayout> {
  const { outDir, config } = image;
  await mkdir(join(outDir, "blobs", "sha256"), { recursive: true });
  const layerBlob = await blob(outDir, "application/vnd.oci.image.layer.v1.tar", await layer(image.files));
  const configJson = {
    created: epoch.toISOString(),
    architecture: config.architecture ?? "amd64",
    os: "linux",
    config: {
      Env: config.env ?? ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
      ...(config.entrypoint ? { Entrypoint: config.entrypoint } : {}),
      ...(config.cmd ? { Cmd: config.cmd } : {}),
      ...(config.user ? { User: config.user } : {}),
      WorkingDir: config.workingDir ?? "/",
      ...(config.exposedPorts ? { ExposedPorts: Object.fromEntries(config.exposedPorts.map((p) => [p, {}])) } : {}),
    },
    rootfs: { type: "layers", diff_ids: [layerBlob.digest] },
    history: [{ created: epoch.toISOString(), created_by: `buildOciLayout ${image.name}` }],
  };
  const configBlob = await blob(
    outDir,
    "application/vnd.oci.image.config.v1+json",
    Buffer.from(JSON.stringify(configJson)),
  );
  const mediaType = "application/vnd.oci.image.manifest.v1+json";
  const manifest = { schemaVersion: 2, mediaType, config: configBlob, layers: [layerBlob] };
  const manifestBlob = await blob(outDir, mediaType, Buffer.from(JSON.stringify(manifest)));
  await replace(join(outDir, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
  const annotations = { "org.opencontainers.image.ref.name": image.name };
  const index = { schemaVersion: 2, manifests: [{ ...manifestBlob, annotations }] };
  await replace(join(outDir, "index.json"), JSON.stringify(index));
  return { reference: `oci:${outDir}@${manifestBlob.digest}`, digest: manifestBlob.digest };
}
