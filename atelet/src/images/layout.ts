import { createHash } from "node:crypto";
import { mkdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { SubstrateError } from "@substrate/lib/errors.ts";

const descriptorSchema = z.object({
  mediaType: z.string(),
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/),
  size: z.int().nonnegative(),
  platform: z.object({ architecture: z.string(), os: z.string() }).optional(),
});

const indexSchema = z.object({ manifests: z.array(descriptorSchema) });
const manifestSchema = z.object({ config: descriptorSchema, layers: z.array(descriptorSchema) });
const list = z
  .array(z.string())
  .nullish()
  .transform((values) => values ?? []);

const configSchema = z.object({
  architecture: z.string(),
  os: z.string(),
  config: z
    .object({
      Entrypoint: list,
      Cmd: list,
      Env: list,
      WorkingDir: z.string().default(""),
      User: z.string().default(""),
    })
    .prefault({}),
});

export type ImageConfig = z.infer<typeof configSchema>["config"];

export interface LayoutImage {
  /** Of the manifest for this platform, when the reference named an index. */
  digest: string;
  manifest: z.infer<typeof manifestSchema>;
  config: ImageConfig;
}

const platform = { os: "linux", architecture: "amd64" };

/** A manifest or a configuration is a few KiB; more would only fill our memory. */
const maxJsonBytes = 4 << 20;

/** The name under which `umociLayout` makes an image addressable. */
export const layoutTag = "image";

/**
 * Finds an image of this platform in an OCI layout by the digest of its manifest or of an index. Every blob that is
 * read is checked against its digest. Throws IMAGE_UNAVAILABLE if it is not there, IMAGE_INVALID if it can't run here.
 *
 * @param reference for messages.
 */
export async function readLayout(reference: string, dir: string, digest: string): Promise<LayoutImage> {
  const value = await readBlob(reference, dir, digest);
  const index = indexSchema.safeParse(value);
  if (index.success) {
    const matches = ({ platform: p }: { platform?: typeof platform | undefined }) =>
      p?.os === platform.os && p.architecture === platform.architecture;
    const child = index.data.manifests.find(matches);
    if (!child)
      throw wrongPlatform(
        reference,
        index.data.manifests.map(({ platform: p }) => `${p?.os ?? "?"}/${p?.architecture ?? "?"}`).join(", "),
      );
    return readLayout(reference, dir, child.digest);
  }
  const manifest = parse(reference, "manifest", manifestSchema, value);
  const config = parse(
    reference,
    "configuration",
    configSchema,
    await readBlob(reference, dir, manifest.config.digest),
  );
  if (config.os !== platform.os || config.architecture !== platform.architecture) {
    throw wrongPlatform(reference, `${config.os}/${config.architecture}`);
  }
  return { digest, manifest, config: config.config };
}

/**
 * A layout that names one image of another layout by `layoutTag`, for umoci, which finds images by tag only and knows
 * only OCI's media types: Docker's manifests have the same shape. Blobs are links to the other layout.
 *
 * @param reference for messages.
 */
export async function umociLayout(
  reference: string,
  source: string,
  image: LayoutImage,
  target: string,
): Promise<void> {
  const blobs = join(target, "blobs", "sha256");
  await mkdir(blobs, { recursive: true });
  const { config, layers } = image.manifest;
  for (const { digest } of [config, ...layers]) {
    const hex = digest.slice("sha256:".length);
    // The same layer may be listed twice.
    await rm(join(blobs, hex), { force: true });
    await symlink(join(source, "blobs", "sha256", hex), join(blobs, hex));
  }
  const manifest = {
    schemaVersion: 2,
    mediaType: mediaTypes.manifest,
    config: { mediaType: mediaTypes.config, digest: config.digest, size: config.size },
    layers: layers.map(({ mediaType, digest, size }) => ({ mediaType: layerType(reference, mediaType), digest, size })),
  };
  const body = Buffer.from(JSON.stringify(manifest));
  const hex = createHash("sha256").update(body).digest("hex");
  await writeFile(join(blobs, hex), body);
  const annotations = { "org.opencontainers.image.ref.name": layoutTag };
  const descriptor = { mediaType: mediaTypes.manifest, digest: `sha256:${hex}`, size: body.length, annotations };
  await writeFile(join(target, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
  await writeFile(join(target, "index.json"), JSON.stringify({ schemaVersion: 2, manifests: [descriptor] }));
}

const mediaTypes = {
  manifest: "application/vnd.oci.image.manifest.v1+json",
  config: "application/vnd.oci.image.config.v1+json",
  layer: "application/vnd.oci.image.layer.v1.tar",
};

const dockerLayers = new Map([
  ["application/vnd.docker.image.rootfs.diff.tar.gzip", `${mediaTypes.layer}+gzip`],
  ["application/vnd.docker.image.rootfs.diff.tar.zstd", `${mediaTypes.layer}+zstd`],
  ["application/vnd.docker.image.rootfs.diff.tar", mediaTypes.layer],
]);

function layerType(reference: string, mediaType: string): string {
  const type = dockerLayers.get(mediaType) ?? mediaType;
  if ([mediaTypes.layer, `${mediaTypes.layer}+gzip`, `${mediaTypes.layer}+zstd`].includes(type)) return type;
  const message = `image ${reference} has a layer of type ${mediaType}: build it with tar, gzip or zstd layers`;
  throw new SubstrateError("IMAGE_INVALID", message);
}

async function readBlob(reference: string, dir: string, digest: string): Promise<unknown> {
  const path = join(dir, "blobs", "sha256", digest.slice("sha256:".length));
  let bytes;
  try {
    const { size } = await stat(path);
    if (size > maxJsonBytes)
      throw new SubstrateError(
        "IMAGE_INVALID",
        `image ${reference}: ${path} has ${size} bytes, too many for a manifest`,
      );
    bytes = await readFile(path);
  } catch (error) {
    if (error instanceof SubstrateError) throw error;
    const message = `image ${reference}: ${error instanceof Error ? error.message : String(error)}; build it again, or correct the digest`;
    throw new SubstrateError("IMAGE_UNAVAILABLE", message, { cause: error });
  }
  if (createHash("sha256").update(bytes).digest("hex") !== digest.slice("sha256:".length)) {
    throw new SubstrateError(
      "IMAGE_INVALID",
      `image ${reference}: ${path} does not have the digest that it is named by`,
    );
  }
  try {
    return JSON.parse(bytes.toString()) as unknown;
  } catch (error) {
    throw new SubstrateError("IMAGE_INVALID", `image ${reference}: ${path} is not JSON`, { cause: error });
  }
}

function parse<T>(reference: string, what: string, schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const message = `image ${reference} has no valid ${what}: ${z.prettifyError(result.error)}`;
  throw new SubstrateError("IMAGE_INVALID", message, { cause: result.error });
}

function wrongPlatform(reference: string, found: string): SubstrateError {
  const message = `image ${reference} is for ${found || "no platform"}, this node runs linux/amd64: build it for linux/amd64`;
  return new SubstrateError("IMAGE_INVALID", message);
}
