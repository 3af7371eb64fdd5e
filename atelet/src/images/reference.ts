import { SubstrateError } from "@substrate/lib/errors.ts";

export type ImageReference =
  /** `digest` is set when the reference is by digest: then no registry needs to be asked which image is meant. */
  | { kind: "registry"; reference: string; repository: string; digest: string | undefined }
  | { kind: "layout"; reference: string; dir: string; digest: string };

const digestPattern = /^sha256:[0-9a-f]{64}$/;
const layoutPrefix = "oci:";

/** host[:port]/path[:tag]; what a registry accepts is narrower, but nothing of this can be an option or a path. */
const namePattern = /^[A-Za-z0-9][A-Za-z0-9._:/-]*$/;

/** Throws IMAGE_INVALID with what a reference looks like. */
export function parseReference(reference: string): ImageReference {
  const at = reference.lastIndexOf("@");
  const name = at < 0 ? reference : reference.slice(0, at);
  const digest = at < 0 ? undefined : reference.slice(at + 1);
  if (digest !== undefined && !digestPattern.test(digest)) {
    throw invalid(reference, "what follows the @ must be sha256: and 64 hex digits");
  }
  if (reference.startsWith(layoutPrefix)) {
    const dir = name.slice(layoutPrefix.length);
    if (!dir.startsWith("/") || dir.split("/").includes("..") || digest === undefined) {
      throw invalid(reference, "a local image is written oci:/absolute/folder@sha256:…");
    }
    return { kind: "layout", reference, dir, digest };
  }
  if (!namePattern.test(name))
    throw invalid(reference, "write registry/repository:tag or registry/repository@sha256:…");
  const slash = name.lastIndexOf("/");
  const colon = name.indexOf(":", slash + 1);
  return { kind: "registry", reference, repository: colon < 0 ? name : name.slice(0, colon), digest };
}

function invalid(reference: string, fix: string): SubstrateError {
  return new SubstrateError("IMAGE_INVALID", `"${reference}" is no image reference: ${fix}`);
}
