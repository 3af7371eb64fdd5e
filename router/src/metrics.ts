import { Counter, Gauge, Histogram, type Registry } from "prom-client";

/** Read when the metrics are scraped. */
export interface RouterLevels {
  held: () => number;
  open: () => number;
  attached: () => number;
}

/** The router's own metrics; the counters of single results are looked up once. */
export class RouterMetrics {
  readonly wakeSeconds: Histogram<"path" | "result">;
  readonly requestSeconds: Histogram;
  readonly heldSeconds: Histogram;
  readonly #requests: Counter<"result">;
  readonly #byResult = new Map<string, Counter.Internal>();

  constructor(registry: Registry) {
    const registers = [registry];
    this.#requests = new Counter({
      name: "substrate_router_requests_total",
      help: "Answered requests: result is the class of the actor's status (2xx ...), an error code of the router, or client_gone",
      labelNames: ["result"],
      registers,
    });
    this.requestSeconds = new Histogram({
      name: "substrate_router_request_seconds",
      help: "From a request's arrival to the end of its response, waiting included",
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
      registers,
    });
    this.heldSeconds = new Histogram({
      name: "substrate_router_held_seconds",
      help: "How long requests waited for their actor, those that did not get through included",
      buckets: [0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 15, 30, 60],
      registers,
    });
    this.wakeSeconds = new Histogram({
      name: "substrate_router_wake_seconds",
      help: "Wake calls: path is atelet or operator, result is OK or an error code",
      labelNames: ["path", "result"],
      buckets: [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 15, 30, 60],
      registers,
    });
  }

  /** Gauges of what the router has now. */
  watch(registry: Registry, levels: RouterLevels): void {
    const gauge = (name: string, help: string, read: () => number): void => {
      const metric: Gauge = new Gauge({
        name,
        help,
        registers: [registry],
        collect: () => {
          metric.set(read());
        },
      });
    };
    gauge("substrate_router_held_requests", "Requests that wait for their actor now", levels.held);
    gauge("substrate_router_open_requests", "Requests that are open at an actor now", levels.open);
    gauge("substrate_router_attached_atelets", "Atelets whose routes are known now", levels.attached);
  }

  answered(result: string, seconds: number): void {
    let counter = this.#byResult.get(result);
    if (counter === undefined) {
      counter = this.#requests.labels(result);
      this.#byResult.set(result, counter);
    }
    counter.inc();
    this.requestSeconds.observe(seconds);
  }
}
