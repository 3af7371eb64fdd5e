import { z } from "zod";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Head, type Manifest } from "./store.ts";

/** The newest format of manifests that this build reads. It writes the lowest that says all. */
const manifestFormat = 3;

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
/** Relative to the cluster's prefix: <namespace uid>/<owner uid>/packs/<name>. */
const packKey = z.string().regex(/^[A-Za-z0-9_-]+\/[A-Za-z0-9_-]+\/packs\/[A-Za-z0-9_-]{1,200}$/);
const fileName = z.string().regex(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$/);
const count = z.int().nonnegative();

const headSchema = z.object({ epoch: count, generation: count, manifest: z.string().nullable() });

const pagesSchema = z.object({
  sizeBytes: count,
  storedBytes: count,
  index: z.object({ sizeBytes: count, sha256 }),
  packs: z.array(z.object({ key: packKey, at: packKey.optional() })),
});

const facts = {
  actor: z.object({ uid: z.string(), namespace: z.string(), name: z.string() }),
  generation: count,
  epoch: count,
  revision: z.string(),
  imageDigest: z.string(),
  fidelity: z.enum(["Memory", "Rootfs", "Data"]),
  envDigest: z.string().optional(),
  volumes: z.array(z.object({ name: z.string().regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/) })).optional(),
  rootfsTar: z.boolean().optional(),
  sandbox: z.object({ class: z.literal("gvisor"), runtime: z.string(), architecture: z.string() }),
  createdAt: z.string(),
  sizeBytes: count,
  files: z.array(z.object({ name: fileName, sizeBytes: count, sha256 })),
  copyOf: z.object({ actorUid: z.string(), generation: count, epoch: count }).optional(),
};

const manifestSchema = z.discriminatedUnion("format", [
  z.object({ format: z.literal([1, 2]), ...facts }),
  z.object({ format: z.literal(manifestFormat), ...facts, pages: pagesSchema }),
]);

const userSchema = z.object({
  user: z.object({ namespaceUid: z.string(), actorUid: z.string() }),
  sinceMs: z.number(),
});
const markerSchema = z.object({ clusterUid: z.string() });
const formatSchema = z.object({ format: z.int() });

function parse<T>(schema: z.ZodType<T>, key: string, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const message = `${key} in the store is damaged: ${z.prettifyError(result.error)}`;
  throw new SubstrateError("SNAPSHOT_DAMAGED", message, { cause: result.error });
}

function json(key: string, body: Buffer): unknown {
  try {
    return JSON.parse(body.toString());
  } catch (error) {
    throw new SubstrateError("SNAPSHOT_DAMAGED", `${key} in the store is damaged: it is not JSON`, { cause: error });
  }
}

/** @param key for messages. Throws SNAPSHOT_DAMAGED. */
export function parseHead(key: string, body: Buffer): Head {
  return parse(headSchema, key, json(key, body));
}

/** @param key for messages. Throws SNAPSHOT_DAMAGED, or RESTORE_FAILED for a format that a newer program wrote. */
export function parseManifest(key: string, body: Buffer): Manifest {
  const value = json(key, body);
  const { format } = parse(formatSchema, key, value);
  if (format > manifestFormat) {
    const message = `${key} has format ${format}, this atelet reads up to ${manifestFormat}: upgrade the atelet`;
    throw new SubstrateError("RESTORE_FAILED", message);
  }
  return parse(manifestSchema, key, value);
}

/** Whose a store is. @param key for messages. Throws SNAPSHOT_DAMAGED. */
export function parseMarker(key: string, body: Buffer): { clusterUid: string } {
  return parse(markerSchema, key, json(key, body));
}

/** Who uses packs of a Snapshot. @param key for messages. Throws SNAPSHOT_DAMAGED. */
export function parseUser(key: string, body: Buffer): z.infer<typeof userSchema> {
  return parse(userSchema, key, json(key, body));
}
