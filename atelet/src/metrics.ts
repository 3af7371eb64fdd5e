import { Counter, Gauge, Histogram, type Registry } from "prom-client";

/** From the 55 ms of a warm restore to the deadlines of a cold one. */
const SECONDS_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 1, 2.5, 5, 10, 30, 60];

export interface AteletMetrics {
  /** Observes every phase of one finished operation, in the milliseconds of Phases.fields(). */
  operation(operation: "resume" | "suspend" | "tag", outcome: "ok" | "failed", fields: Record<string, number>): void;
  crashes: Counter;
  crashLoops: Counter;
  uploads: Counter<"outcome">;
  logBytes: Counter;
  droppedLogBytes: Counter;
  tombstones: Gauge;
  origins: Gauge;
  originStarts: Counter<"kind" | "outcome">;
}

/** Of this node's actors. */
export interface ActorCounts {
  running(): number;
  /** Whose newest generation is on this node only. */
  pending(): number;
  /** Asleep, with an address that is kept for their connections. */
  parked(): number;
}

export function createAteletMetrics(registry: Registry, actors: ActorCounts): AteletMetrics {
  const seconds = new Histogram({
    name: "substrate_atelet_operation_seconds",
    help: "Time of each phase of resumes and suspends.",
    labelNames: ["operation", "phase", "outcome"],
    buckets: SECONDS_BUCKETS,
    registers: [registry],
  });
  const running = new Gauge({
    name: "substrate_atelet_running_actors",
    help: "Actors that have a sandbox.",
    registers: [registry],
    collect() {
      running.set(actors.running());
    },
  });
  const pending = new Gauge({
    name: "substrate_atelet_pending_actors",
    help: "Actors whose newest generation is on this node's disk only, not in a store yet.",
    registers: [registry],
    collect() {
      pending.set(actors.pending());
    },
  });
  const parked = new Gauge({
    name: "substrate_atelet_parked_addresses",
    help: "Sleeping actors whose address and open connections are kept for their next start.",
    registers: [registry],
    collect() {
      parked.set(actors.parked());
    },
  });
  return {
    operation(operation, outcome, fields) {
      for (const [name, ms] of Object.entries(fields)) {
        seconds.observe({ operation, phase: name.replace(/Ms$/, ""), outcome }, ms / 1000);
      }
    },
    crashes: new Counter({
      name: "substrate_atelet_crashes_total",
      help: "Sandboxes that ended by themselves.",
      registers: [registry],
    }),
    tombstones: new Gauge({
      name: "substrate_atelet_tombstones",
      help: "Deleted actors and snapshots whose data has not been removed from every store yet.",
      registers: [registry],
    }),
    origins: new Gauge({
      name: "substrate_atelet_origins",
      help: "Golden snapshots and tags whose files are on this node, for actors to start from.",
      registers: [registry],
    }),
    originStarts: new Counter({
      name: "substrate_atelet_origin_starts_total",
      help: "First starts of actors from a golden snapshot or a tag.",
      labelNames: ["kind", "outcome"],
      registers: [registry],
    }),
    crashLoops: new Counter({
      name: "substrate_atelet_crash_loops_total",
      help: "Actors that ended soon after their start so often that only a person starts them again.",
      registers: [registry],
    }),
    logBytes: new Counter({
      name: "substrate_atelet_actor_log_bytes_total",
      help: "Output of actors that was passed on to standard output.",
      registers: [registry],
    }),
    droppedLogBytes: new Counter({
      name: "substrate_atelet_actor_log_dropped_bytes_total",
      help: "Output of actors that was rotated away before the reader of standard output took it.",
      registers: [registry],
    }),
    uploads: new Counter({
      name: "substrate_atelet_uploads_total",
      help: "Generations sent to a store, by outcome.",
      labelNames: ["outcome"],
      registers: [registry],
    }),
  };
}
