import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type SleepingImage } from "../network/network.ts";
import { type LiveVolumes } from "../volumes/stack.ts";
import { type Generations } from "./generations.ts";
import { type ActorRecord, type Generation } from "./record.ts";

/** What a start goes on from. */
export interface Beginning {
  /** For its identity; 0: a cold start from nothing, or but the volumes. */
  generation: number;
  /** UID of the golden snapshot or tag that it begins from, if it is not a generation of its own. */
  origin?: string;
  /** The image of memory to restore; absent: a cold start. */
  restore?: { imageDir: string };
  /** The image, if its program may go on with the connections that it has in its memory. */
  connections?: SleepingImage;
  /** Of the environment that is in the memory to restore; a cold start has the actor's own. */
  envDigest: string;
  /** See SandboxSpec: with what the root file system begins at a cold start, and what a restore must name again. */
  rootfsTar?: string;
  /** What the volumes begin with, as it is written down when they are mounted. */
  volumes: () => Pick<LiveVolumes, "base" | "stacks">;
  /** Lets its files go. */
  release: () => Promise<void>;
}

/** Beside an image's files, in a generation of fidelity Rootfs. */
export const ROOTFS_TAR = "rootfs.tar";
/** Any file will do for a restore, which reads nothing of it. */
export const NOTHING_OF_ROOTFS = "/dev/null";

/** A cold start with the volumes as they are. */
export function coldBeginning(record: ActorRecord): Beginning {
  return { generation: 0, envDigest: "", volumes: () => record.volumes, release: () => Promise.resolve() };
}

/**
 * A start from a generation whose files are here. Its memory goes with its volumes; where the program starts cold, as
 * it always does at a boot, the volumes stay as they are now if they come from that generation.
 * @param options.chosen a person goes back to it: its connections are of another time, then, though it be the newest.
 */
export function beginningFrom(
  { generation, epoch, fidelity, envDigest }: Generation,
  generations: Generations,
  record: ActorRecord,
  options: { boot?: boolean; chosen?: boolean } = {},
): Beginning {
  const local = generations.local(generation);
  if (local === undefined) throw new SubstrateError("INTERNAL", `generation ${generation} is not on this node`);
  const release = generations.pin(generation);
  const base = { generation, epoch };
  const saved: Beginning["volumes"] = () => ({ base, stacks: generations.local(generation)?.volumes ?? [] });
  if (fidelity === "Memory" && options.boot !== true) {
    const restore = { imageDir: generations.path(generation) };
    return {
      generation,
      restore,
      ...(options.chosen !== true && { connections: { actor: record.actor.uid, ...base } }),
      envDigest,
      ...(local.rootfsTar && { rootfsTar: NOTHING_OF_ROOTFS }),
      volumes: saved,
      release,
    };
  }
  const live = record.volumes.base;
  const goOn = live.generation === generation && live.epoch === epoch;
  const volumes = goOn ? (): LiveVolumes => record.volumes : saved;
  if (options.boot === true) return { generation: 0, envDigest, volumes, release };
  const rootfsTar = join(generations.path(generation), ROOTFS_TAR);
  return { generation, envDigest, ...(fidelity === "Rootfs" && { rootfsTar }), volumes, release };
}
