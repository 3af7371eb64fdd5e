import { z } from "zod";

/**
 * One layer of a volume: an own one, actors/<uid>/volumes/<name>/layers/<own>, or one of what the actor began from,
 * origins/<origin>/volumes/<name>, which lies at the bottom. Frozen but for the newest one while a sandbox has it.
 */
export const layerSchema = z.union([
  z.strictObject({ own: z.number().int().positive() }),
  z.strictObject({ origin: z.string() }),
]);
export type Layer = z.infer<typeof layerSchema>;

export const stackSchema = z.object({
  name: z.string(),
  /** Newest first; what a newer layer has hides what older ones have. */
  layers: z.array(layerSchema),
});
/** The content of one volume. */
export type VolumeStack = z.infer<typeof stackSchema>;

/** Stacks whose layers stay, whatever else names them; "unknown": any layer may be one of them. */
export type KeptStacks = VolumeStack[] | "unknown";

/** What an actor's volumes hold now. */
export const liveVolumesSchema = z.object({
  /** The generation whose state they continue; both 0: none. */
  base: z.object({ generation: z.number().int(), epoch: z.number().int() }),
  /**
   * Whether they hold what no generation has and a next start keeps: a program ran on them after a cold start. What a
   * program writes after a restore of its memory is rolled back with its memory.
   */
  unsaved: z.boolean(),
  stacks: z.array(stackSchema),
});
export type LiveVolumes = z.infer<typeof liveVolumesSchema>;

export function noVolumes(): LiveVolumes {
  return { base: { generation: 0, epoch: 0 }, unsaved: false, stacks: [] };
}

export function sameLayer(a: Layer, b: Layer): boolean {
  if ("own" in a) return "own" in b && a.own === b.own;
  return "origin" in b && a.origin === b.origin;
}

/** Numbers of the own layers that any of the stacks of this volume names. */
export function ownLayers(stacks: readonly VolumeStack[], name: string): Set<number> {
  const own = new Set<number>();
  for (const stack of stacks) {
    if (stack.name !== name) continue;
    for (const layer of stack.layers) if ("own" in layer) own.add(layer.own);
  }
  return own;
}

/** The stack with a bottom that ends as `flattened` replaced by one layer of the same content; undefined if it has none. */
export function withFlattened(layers: readonly Layer[], flattened: readonly Layer[], into: Layer): Layer[] | undefined {
  const top = layers.length - flattened.length;
  if (top < 0 || !flattened.every((layer, index) => sameLayer(layer, layers[top + index] ?? { own: -1 }))) {
    return undefined;
  }
  return [...layers.slice(0, top), into];
}
