import { SubstrateError } from "@substrate/lib/errors.ts";
import { resolveInRootfs, RootfsError } from "./rootfs.ts";

/**
 * A folder for a volume in an unpacked image, which all actors of that image share: empty where they don't mount it.
 * Throws IMAGE_INVALID if a file of the image is in its place.
 *
 * @param reference for the message.
 */
export async function makeVolumeMountPoint(reference: string, rootfsDir: string, mountPath: string): Promise<void> {
  try {
    await resolveInRootfs(rootfsDir, mountPath, { make: true });
  } catch (error) {
    if (!(error instanceof RootfsError)) throw error;
    const message = `image ${reference} has no place for a volume: ${error.message}; choose another mountPath in its Template`;
    throw new SubstrateError("IMAGE_INVALID", message, { cause: error });
  }
}
