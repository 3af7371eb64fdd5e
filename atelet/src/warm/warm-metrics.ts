import { Counter, Gauge, type Registry } from "prom-client";

export type WarmOutcome = "made" | "taken" | "missed" | "given-up" | "unfit";

/** @param waiting how many sandboxes wait for an actor now. */
export function createWarmMetrics(registry: Registry, waiting: () => number): Counter<"outcome"> {
  const gauge = new Gauge({
    name: "substrate_warm_sandboxes",
    help: "Sandboxes that were created and wait for an actor to be restored into them.",
    registers: [registry],
    collect() {
      gauge.set(waiting());
    },
  });
  return new Counter({
    name: "substrate_warm_sandboxes_total",
    help: "What became of warm sandboxes: made, taken by a start, missed by a start that found none, given up, unfit.",
    labelNames: ["outcome"],
    registers: [registry],
  });
}
