import { readFile } from "node:fs/promises";
import { isAbsolute } from "node:path";
import { parse } from "yaml";
import { z } from "zod";
import { SubstrateError } from "@substrate/lib/errors.ts";

const absolutePath = z.string().refine((path) => isAbsolute(path), "expects an absolute path");
/** host[:port][/path], as image references begin. */
const place = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9.-]*(:\d+)?(\/[a-z0-9._-]+)*$/, "expects HOST[:PORT][/PATH]");

const configSchema = z.strictObject({
  /** Where images whose names begin so are looked for first. */
  mirrors: z
    .array(z.strictObject({ prefix: place, location: place, insecure: z.boolean().default(false) }))
    .default([]),
  /** Folders with a config.json or .dockerconfigjson: mounted Secrets of type kubernetes.io/dockerconfigjson. */
  pullSecrets: z.array(absolutePath).default([]),
  /** PEM of authorities that are believed besides the public ones. */
  caFile: absolutePath.optional(),
});

export type RegistryConfig = z.infer<typeof configSchema>;

/**
 * Reads the file of --registry-config. Throws IMAGE_UNAVAILABLE, naming the file and what is wrong.
 *
 * @param path absolute.
 */
export async function readRegistryConfig(path: string): Promise<RegistryConfig> {
  let content: unknown;
  try {
    content = parse(await readFile(path, "utf8"));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new SubstrateError("IMAGE_UNAVAILABLE", `--registry-config ${path}: ${reason}`, { cause: error });
  }
  const config = configSchema.safeParse(content ?? {});
  if (config.success) return config.data;
  throw new SubstrateError("IMAGE_UNAVAILABLE", `--registry-config ${path}: ${z.prettifyError(config.error)}`);
}

/** One place to ask for an image. */
export interface Source {
  /** As crane is told. */
  reference: string;
  /** The registry, with the path where the configuration has one. */
  location: string;
  insecure: boolean;
}

/** The mirrors of an image, the one with the longest prefix first, and at last its own registry. */
export function sourcesOf(reference: string, mirrors: RegistryConfig["mirrors"]): Source[] {
  const full = fullName(reference);
  const fitting = mirrors
    .filter(({ prefix }) => full === prefix || /^[/:@]/.test(full.startsWith(prefix) ? full.slice(prefix.length) : ""))
    .sort((a, b) => b.prefix.length - a.prefix.length)
    .map(({ prefix, location, insecure }) => ({
      reference: `${location}${full.slice(prefix.length)}`,
      location,
      insecure,
    }));
  return [...fitting, { reference, location: full.slice(0, full.indexOf("/")), insecure: false }];
}

/** With the registry that a short name means, as container tools have it: nginx is docker.io/library/nginx. */
export function fullName(reference: string): string {
  const slash = reference.indexOf("/");
  const first = slash < 0 ? "" : reference.slice(0, slash);
  if (first === "index.docker.io") return `docker.io${reference.slice(slash)}`;
  if (/[.:]/.test(first) || first === "localhost") return reference;
  return `docker.io/${slash < 0 ? "library/" : ""}${reference}`;
}
