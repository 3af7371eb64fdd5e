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
    const lastTransitionTime = before?.status === facts.status ? before.lastTransitionTime : isoSeconds(now.getTime());
    return { ...facts, observedGeneration, lastTransitionTime };
  });
}

/** As the API server writes times: without fractions. */
export function isoSeconds(unixMs: number): string {
  return new Date(unixMs).toISOString().replace(/\.\d+Z$/, "Z");
}

/** "IMAGE_UNAVAILABLE" → "ImageUnavailable": codes of the error catalogue as condition and Event reasons. */
export function reasonOf(code: string): string {
  return code
    .toLowerCase()
    .split("_")
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join("");
}
