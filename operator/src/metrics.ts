import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { type Phases } from "@substrate/lib/phases.ts";
import { type Outcome, type ReconcileQueue } from "./queue.ts";

const secondsBuckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** What the operator counts and times; every name has its unit. */
export class OperatorMetrics {
  readonly #reconcileSeconds: Histogram<"kind" | "outcome">;
  readonly #wakeSeconds: Histogram<"result" | "phase">;
  readonly #grants: Counter<"reason">;
  readonly #operations: Counter<"type" | "result">;
  readonly #statusWrites: Counter<"kind">;
  readonly #queues = new Map<string, ReconcileQueue>();

  constructor(registry: Registry) {
    const registers = [registry];
    this.#reconcileSeconds = new Histogram({
      name: "substrate_operator_reconcile_duration_seconds",
      help: "Time of one reconcile, by kind and outcome (done, requeue, error, terminal)",
      labelNames: ["kind", "outcome"],
      buckets: secondsBuckets,
      registers,
    });
    this.#wakeSeconds = new Histogram({
      name: "substrate_operator_wake_duration_seconds",
      help: "Time of a wake through the operator by phase, and in all as phase total; result is ok or an error code",
      labelNames: ["result", "phase"],
      buckets: secondsBuckets,
      registers,
    });
    this.#grants = new Counter({
      name: "substrate_operator_grants_total",
      help: "Assignments written: placement of an unassigned actor, or regrant to the same node",
      labelNames: ["reason"],
      registers,
    });
    this.#operations = new Counter({
      name: "substrate_operator_operations_total",
      help: "Suspends and resumes asked of the operator, by result (ok or an error code)",
      labelNames: ["type", "result"],
      registers,
    });
    this.#statusWrites = new Counter({
      name: "substrate_operator_status_writes_total",
      help: "Status writes to the API server, by kind",
      labelNames: ["kind"],
      registers,
    });
    const depth = new Gauge({
      name: "substrate_operator_queue_depth",
      help: "Keys that wait for a reconcile, by kind",
      labelNames: ["kind"],
      registers,
      collect: () => {
        for (const [kind, queue] of this.#queues) depth.set({ kind }, queue.depth);
      },
    });
  }

  /** Exports the queue's depth. */
  watch(kind: string, queue: ReconcileQueue): void {
    this.#queues.set(kind, queue);
  }

  reconciled(kind: string, outcome: Outcome, durationMs: number): void {
    this.#reconcileSeconds.observe({ kind, outcome }, durationMs / 1_000);
  }

  wake(result: string, phases: Phases): void {
    for (const [field, ms] of Object.entries(phases.fields())) {
      this.#wakeSeconds.observe({ result, phase: field.replace(/Ms$/, "") }, ms / 1_000);
    }
  }

  grant(reason: "placement" | "regrant"): void {
    this.#grants.inc({ reason });
  }

  operation(type: string, result: string): void {
    this.#operations.inc({ type, result });
  }

  statusWrite(kind: string): void {
    this.#statusWrites.inc({ kind });
  }
}
