import { z } from "zod";
import { type Mapping } from "./ruleset.ts";

/** What an earlier atelet left in the table. */
export interface KernelState {
  /** Link name → node address. */
  sources: Map<string, string>;
  /** Names of links that nothing may pass. */
  blocked: string[];
  /** Addresses whose peers hear that they can't be reached, with the mark of those that are parked. */
  asleep: Map<string, string | undefined>;
  mappings: Mapping[];
  restingPorts: number[];
  /** Addresses that may reach actors. */
  routers: string[];
}

/** The shapes of `nft -j list`; an element with a timeout or a comment is wrapped in {elem}. */
const listing = z.object({
  nftables: z.array(z.object({ map: z.unknown().optional(), set: z.unknown().optional() })),
});
const named = z.object({ name: z.string(), elem: z.array(z.unknown()).default([]) });
const source = z.tuple([z.string(), z.string()]);
const mapping = z.tuple([z.number(), z.object({ concat: z.tuple([z.string(), z.number()]) })]);
const resting = z.union([z.number(), z.object({ elem: z.object({ val: z.number() }) })]);
const sleeping = z.union([
  z.string(),
  z.object({ elem: z.object({ val: z.string(), comment: z.string().optional() }) }),
]);

/** @param list the answer of `nft -j list table ip ate`. Throws if it has another shape. */
export function readKernelState(list: unknown): KernelState {
  const sets = listing
    .parse(list)
    .nftables.map((entry) => entry.map ?? entry.set)
    .filter((entry) => entry !== undefined)
    .map((entry) => named.parse(entry));
  const elementsOf = (name: string): unknown[] => sets.find((set) => set.name === name)?.elem ?? [];
  return {
    sources: new Map(elementsOf("src").map((element) => source.parse(element))),
    blocked: elementsOf("blk").map((element) => z.string().parse(element)),
    asleep: new Map(
      elementsOf("asleep")
        .map((element) => sleeping.parse(element))
        .map((element) =>
          typeof element === "string" ? [element, undefined] : [element.elem.val, element.elem.comment],
        ),
    ),
    mappings: elementsOf("dn")
      .map((element) => mapping.parse(element))
      .map(([outerPort, { concat }]) => ({ outerPort, nodeAddress: concat[0], containerPort: concat[1] })),
    restingPorts: elementsOf("recent")
      .map((element) => resting.parse(element))
      .map((element) => (typeof element === "number" ? element : element.elem.val)),
    routers: elementsOf("routers").map((element) => z.string().parse(element)),
  };
}
