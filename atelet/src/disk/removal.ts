import { type Logger } from "@substrate/lib/log.ts";

/** Something on the node's disk that can be had again. */
export interface Removable {
  kind: "generation" | "origin" | "image";
  /** For the log. */
  name: string;
  /** The folder that goes. */
  bytes: () => Promise<number>;
  /** @returns false if somebody has begun to use it. */
  remove: () => Promise<boolean>;
}

export interface RemovalOptions {
  removed: (removed: { kind: Removable["kind"]; bytes: number }) => void;
  log: Logger;
}

/**
 * Removes one after the other until so many bytes are gone. What cannot be removed, on a broken disk, keeps nothing else.
 * @returns how many bytes have gone.
 */
export async function removeFor(
  bytes: number,
  removables: readonly Removable[],
  { removed, log }: RemovalOptions,
): Promise<number> {
  let gone = 0;
  for (const { kind, name, bytes: bytesOf, remove } of removables) {
    if (gone >= bytes) break;
    try {
      const size = await bytesOf();
      if (size === 0 || !(await remove())) continue;
      gone += size;
      removed({ kind, bytes: size });
      log.info("removed from the node's disk to make room", { kind, name, bytes: size });
    } catch (error) {
      log.warn("a copy could not be removed from the node's disk", { kind, name, error });
    }
  }
  return gone;
}
