import { type Removable } from "../disk/removal.ts";
import { type ImageStore } from "../images/image-store.ts";
import { type Origins } from "../origins/origins.ts";
import { type Actor } from "./actor.ts";
import { evictableCopies } from "./evictable.ts";

/** What was used so lately is likely to be used again. */
const ORIGIN_UNUSED_MS = 600_000;
const IMAGE_UNUSED_MS = 1_800_000;

export interface RemovablesOptions {
  actors: readonly Actor[];
  origins: Pick<Origins, "removables" | "imageDigests">;
  images: Pick<ImageStore, "removables">;
  /** Root file systems that warm sandboxes have. */
  warmRootfs: readonly string[];
  bytesBelow: (dir: string) => Promise<number>;
}

/**
 * R24: all that may go from a node's disk, in the order in which it goes: Snapshots and images that nobody has used for
 * long, then copies of what is in the store, then Snapshots that nobody uses just now.
 */
export function removablesOf({ actors, origins, images, warmRootfs, bytesBelow }: RemovablesOptions): Removable[] {
  const used = new Set([...origins.imageDigests(), ...actors.flatMap((actor) => imagesOf(actor))]);
  return [
    ...origins.removables(ORIGIN_UNUSED_MS),
    ...images.removables(
      ({ digest, dir }) => used.has(digest) || warmRootfs.some((rootfs) => rootfs.startsWith(`${dir}/`)),
      IMAGE_UNUSED_MS,
    ),
    ...evictableCopies(actors, bytesBelow),
    ...origins.removables(0),
  ];
}

/** Whoever runs, or is to be restored, has its root file system there. */
function imagesOf({ record }: Actor): string[] {
  return [
    ...record.generations.map(({ imageDigest }) => imageDigest),
    ...(record.sandbox === undefined ? [] : [record.sandbox.imageDigest]),
  ];
}
