import { durations, type Burned } from "../burnin/report.ts";
import { type Samples } from "../samples.ts";
import { percentile } from "../statistics.ts";
import { heldMib, label } from "./held.ts";
import { type Table } from "./markdown.ts";
import { type PartRow, type Row } from "./plan.ts";
import { pythonNames } from "./python.ts";
import { sizeTable } from "./size-table.ts";
import { percent, tightNames } from "./tight.ts";

export interface Measured {
  samples: Samples;
  quick: boolean;
  burned: Burned;
  /** Of the burn-in. */
  node: Row;
  parts: readonly PartRow[];
}

/** Everything that was measured, as tables of docs/benchmarks.md. */
export function tables({ samples, quick, burned, node, parts }: Measured): Table[] {
  return [
    sizeTable(samples, heldMib(quick)),
    zeros(samples),
    link(samples),
    pythonTable(samples),
    requests(samples),
    tightTable(samples),
    fifteen(samples),
    burnin(burned),
    { title: "The node in the burn-in, largest", head: ["", ""], rows: Object.entries(node).slice(1).map(shown) },
    {
      title: "What each part took",
      head: ["Part", "s", "s given", "load average before"],
      rows: parts.map((row) => [row.part, `${row.seconds}`, `${row.budgetSeconds}`, row.loadAverage.toFixed(1)]),
    },
  ];
}

function shown([name, value]: [string, number | string]): string[] {
  return [name, typeof value === "number" ? value.toFixed(1) : value];
}

function pair(samples: Samples, product: string, raw: string): string[] {
  const ratio = samples.median(product) / samples.median(raw);
  return [samples.spread(product), samples.spread(raw), ratio.toFixed(2)];
}

function zeros(samples: Samples): Table {
  const sizes = [{ mib: 0, kind: "zero" } as const, ...[200, 500].map((mib) => ({ mib, kind: "zero" }) as const)];
  return {
    title: "Zero pages, ms",
    head: ["Held", "async suspend", "raw", "÷", "resume from the node", "raw", "÷"],
    rows: sizes.map((size) => [
      label(size),
      ...pair(samples, `suspend ${label(size)}`, `raw suspend ${label(size)}`),
      ...pair(samples, `resume ${label(size)}`, `raw resume ${label(size)}`),
    ]),
  };
}

function link(samples: Samples): Table {
  const downloadAndRestore = samples.median("link plain download") + samples.median("link raw restore");
  const store = samples.median("link store resume");
  return {
    title: "The way to the store",
    head: ["", "product", "curl, or raw runsc", "÷"],
    rows: [
      ["first sync suspend through 100 MiB/s, MiB/s", ...pair(samples, "link upload MiB/s", "link plain upload MiB/s")],
      [
        "resume through 100 MiB/s, ms; download, then restore",
        samples.spread("link store resume"),
        `${Math.round(downloadAndRestore)}`,
        (store / downloadAndRestore).toFixed(2),
      ],
      ["1,000 MiB from the store, ms; download", ...pair(samples, "store resume, near", "plain download, near")],
      ["the same, 20 ms away", ...pair(samples, "store resume, 20 ms away", "plain download, 20 ms away")],
      [
        "1,000 MiB, 5 % changed: sync suspend, ms; async",
        ...pair(samples, "sync after 5 % changed", "async after 5 % changed"),
      ],
    ],
  };
}

function pythonTable(samples: Samples): Table {
  const { resume, call, suspend, syncFirst, syncAgain } = pythonNames;
  const whole = samples.median(`raw ${suspend}`) + samples.median("python plain upload");
  return {
    title: "Python server, 245 MiB resident, ms",
    head: ["", "product", "raw runsc", "÷", "reference's"],
    rows: [
      ["resume, by the API", ...pair(samples, resume, `raw ${resume}`), "410"],
      ["first call, which wakes it", ...pair(samples, call, `raw ${call}`), "630"],
      ["async suspend", ...pair(samples, suspend, `raw ${suspend}`), "810"],
      [
        "sync suspend, first; raw suspend, then curl's upload",
        samples.spread(syncFirst),
        `${Math.round(whole)}`,
        (samples.median(syncFirst) / whole).toFixed(2),
        "1,930",
      ],
      ["sync suspend, again", samples.spread(syncAgain), "", "", ""],
    ],
  };
}

function requests(samples: Samples): Table {
  return {
    title: "A request to a running actor, ms",
    head: ["", "p50", "p90", "p99", "requests"],
    rows: ["request through the router", "request to the actor's address"].map((name) => {
      const values = samples.of(name);
      return [name, ...[0.5, 0.9, 0.99].map((share) => percentile(values, share).toFixed(2)), `${values.length}`];
    }),
  };
}

function tightTable(samples: Samples): Table {
  const spread = (name: string): string => (samples.of(name).length === 0 ? "" : samples.spread(name));
  const cells = (failed: string, ...names: string[]): string[] => [
    `${percent(samples.of(failed))} of ${samples.of(failed).length}`,
    ...names.map(spread),
  ];
  const { suspend, checkpoint, failed, roomySuspend, roomyCheckpoint, rawCheckpoint, rawFailed } = tightNames;
  return {
    title: "500 MiB held, 64 MiB dirtied in each cycle, ms",
    head: ["", "% failed", "suspend", "checkpoint"],
    rows: [
      ["product, limit of 600 MiB", ...cells(failed, suspend, checkpoint)],
      [
        "product, limit of 1,600 MiB",
        `0 of ${samples.of(roomySuspend).length}`,
        spread(roomySuspend),
        spread(roomyCheckpoint),
      ],
      [
        "plain runsc, limit of 600 MiB",
        `${percent(samples.of(rawFailed))} of ${samples.of(rawFailed).length}`,
        "",
        spread(rawCheckpoint),
      ],
    ],
  };
}

function fifteen(samples: Samples): Table {
  return {
    title: "15 actors, 512 MiB capacity, 32 MiB churn, 1 s wait",
    head: ["", "product", "raw runsc in shell loops", "÷"],
    rows: [
      ["cycles/min", ...pair(samples, "cycles/min", "raw cycles/min")],
      ["request that wakes, p50/p90/p99, ms", samples.percentiles("cycle resume"), "", ""],
      ["async suspend, p50/p90/p99, ms", samples.percentiles("cycle suspend"), "", ""],
    ],
  };
}

function burnin(burned: Burned): Table {
  const names = ["wake", "suspend", "suspend.checkpoint", "raw checkpoint"];
  return {
    title: "Burn-in, 6 users, ms",
    head: ["", "p50", "p90", "p99", "largest", "count"],
    rows: names.map((name) => {
      const values = durations(burned, name);
      const shares = [0.5, 0.9, 0.99, 1].map((share) => `${Math.round(percentile(values, share))}`);
      return [name, ...shares, `${values.length}`];
    }),
  };
}
