import { type Condition } from "@substrate/crds/index.ts";
import { type ConditionType, type Reason } from "./reasons.ts";

export type ConditionFacts = Omit<Condition, "lastTransitionTime" | "observedGeneration" | "type" | "reason"> & {
  type: ConditionType;
  reason: Reason;
};

/** A reason and a text for a person, for a condition that is False. */
export interface Trouble {
  reason: Reason;
  message: string;
}

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
