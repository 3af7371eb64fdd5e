import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { isAbsent } from "../store/folder.ts";
import { fullName } from "./registry-config.ts";

const fileNames = [".dockerconfigjson", "config.json"];

const dockerConfigSchema = z.object({ auths: z.record(z.string(), z.record(z.string(), z.unknown())).default({}) });

/** What a pull secret has for an image. */
export interface PullSecret {
  /** The folder it is in. */
  folder: string;
  /** Which of its entries: registry.example, https://registry.example/v1/, registry.example/team or *.example. */
  entry: string;
  /** As the file has it: auth, or username and password, or identitytoken. */
  auth: Record<string, unknown>;
}

/**
 * The entry for an image by the kubelet's rules: a host, perhaps with * in its parts, and a path that the image's begins
 * with; the longest wins, then the first folder. Read anew at each pull, so that a changed Secret holds at once.
 * Throws IMAGE_UNAVAILABLE for a folder without a readable file, naming it.
 */
export async function pullSecretFor(reference: string, folders: readonly string[]): Promise<PullSecret | undefined> {
  let best: { secret: PullSecret; length: number } | undefined;
  for (const folder of folders) {
    for (const [entry, auth] of Object.entries(await authsOf(folder))) {
      const length = matchLength(entry, fullName(reference));
      if (length > (best?.length ?? 0)) best = { secret: { folder, entry, auth }, length };
    }
  }
  return best?.secret;
}

async function authsOf(folder: string): Promise<Record<string, Record<string, unknown>>> {
  for (const name of fileNames) {
    const path = join(folder, name);
    try {
      return dockerConfigSchema.parse(JSON.parse(await readFile(path, "utf8"))).auths;
    } catch (error) {
      if (isAbsent(error)) continue;
      // what a parser says of a secret file may quote it
      const what = error instanceof SyntaxError || error instanceof z.ZodError ? "is no docker configuration" : "";
      const reason = what === "" && error instanceof Error ? error.message : what;
      throw unreadable(`${path} ${reason}`, error);
    }
  }
  throw unreadable(`there is no ${fileNames.join(" or ")} in ${folder}`);
}

function unreadable(what: string, cause?: unknown): SubstrateError {
  const fix = "it needs a Secret of type kubernetes.io/dockerconfigjson (kubectl create secret docker-registry)";
  return new SubstrateError("IMAGE_UNAVAILABLE", `a pull secret cannot be used: ${what}: ${fix}`, { cause });
}

/** How much of the image's name an entry fits; 0 if it doesn't. */
function matchLength(entry: string, image: string): number {
  const plain = entry
    .replace(/^https?:\/\//, "")
    .replace(/\/v[12]\/?$/, "")
    .replace(/\/$/, "")
    .replace(/^index\.docker\.io(?=\/|$)/, "docker.io");
  const [host = "", ...path] = plain.split("/");
  const [imageHost = "", ...rest] = image.split("/");
  const parts = host.split(".");
  const imageParts = imageHost.split(".");
  const sameHost =
    parts.length === imageParts.length &&
    parts.every((part, i) => {
      const other = imageParts[i] ?? "";
      return part === other || (part.includes("*") && glob(part).test(other));
    });
  if (!sameHost) return 0;
  const imagePath = rest.join("/").replace(/(@.*|:[^/]*)$/, "");
  const wanted = path.join("/");
  if (wanted !== "" && imagePath !== wanted && !imagePath.startsWith(`${wanted}/`)) return 0;
  return plain.length;
}

function glob(part: string): RegExp {
  const escaped = part.split("*").map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${escaped.join("[^.]*")}$`);
}
