export interface UnpackedImage {
  /** "sha256:…" of the image's manifest. */
  digest: string;
  rootfsDir: string;
  entrypoint: readonly string[];
  cmd: readonly string[];
  env: readonly string[];
  workingDir: string;
  uid: number;
  gid: number;
}

/** Images pulled by digest and unpacked once per digest. */
export interface Images {
  /**
   * @param reference a registry reference (tag or digest), or oci:/abs/dir@sha256:… where the atelet allows it.
   * A resolved digest is remembered with the caller's revision, so that a moved tag never changes a running actor.
   * Throws IMAGE_UNAVAILABLE or IMAGE_INVALID with the reference and the fix in the message.
   */
  ensure(reference: string): Promise<UnpackedImage>;
  /** An image that is already unpacked here, without asking any registry. */
  local(digest: string): Promise<UnpackedImage | undefined>;
}
