import { Registry } from "prom-client";
import { expect, it } from "vitest";
import { OperatorMetrics } from "./metrics.ts";
import { ReconcileQueue } from "./queue.ts";

it("regression: the depth of each queue was a metric of its own, not a label", async () => {
  const registry = new Registry();
  const metrics = new OperatorMetrics(registry);
  const options = { concurrency: 1, reconcile: () => Promise.resolve({}), observer: { finished: () => undefined } };
  const queues = { Template: new ReconcileQueue(options), Actor: new ReconcileQueue(options) };
  for (const [kind, queue] of Object.entries(queues)) metrics.watch(kind, queue);
  queues.Actor.add("ns/a");
  queues.Actor.add("ns/b");
  const text = await registry.getSingleMetricAsString("substrate_operator_queue_depth");
  expect(text).toContain('substrate_operator_queue_depth{kind="Template"} 0\n');
  expect(text).toMatch(/substrate_operator_queue_depth\{kind="Actor"\} 2$/m);
});
