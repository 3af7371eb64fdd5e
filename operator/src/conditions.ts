import { type Condition } from "@substrate/crds/index.ts";

export type ConditionFacts = Omit<Condition, "lastTransitionTime" | "observedGeneration">;

/** The wanted conditions in their order, with lastTransitionTime moved only where the status flipped. */
export function mergeConditions(
  previous: readonly Condition[] | undefined,
  wanted: readonly ConditionFacts[],
  observedGeneration: number,
  now: Date,
): Condition[] {
  return wanted.map((facts) => {
    const before = previous?.find(({ type }) => type === facts.type);
    const lastTransitionTime =
      before?.status === facts.status ? before.lastTransitionTime : now.toISOString().replace(/\.\d+Z$/, "Z");
    return { ...facts, observedGeneration, lastTransitionTime };
  });
}

/** "IMAGE_UNAVAILABLE" → "ImageUnavailable": codes of the error catalogue as condition and Event reasons. */
export function reasonOf(code: string): string {
  return code
    .toLowerCase()
    .split("_")
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join("");
}
