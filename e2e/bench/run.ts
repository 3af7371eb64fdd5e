import { writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { burnin, type BurninResult } from "./burnin/burnin.ts";
import { cluster, type ClusterResult } from "./cluster.ts";
import { interruption } from "./interruption.ts";
import { loop, type LoopResult } from "./loop.ts";
import { pages, type PagesResult } from "./pages.ts";
import { s3, type S3Result } from "./s3.ts";
import { snapshots, type SnapshotsResult } from "./snapshots/snapshots.ts";
import { starts, type StartsResult } from "./starts.ts";
import { transfer, type TransferResult } from "./transfer.ts";

const usage = `npm run bench -- NAME [--json FILE]

  snapshots [--quick] [--minutes N] [--folder DIR]
            all that putting memory away and bringing it back costs, beside its raw limits, in one run
  burnin [--users N] [--minutes N] [--folder DIR]
            users that wake, use and suspend actors: percentiles over time; values and plots go into the folder
  loop [--rounds N] [--max-mib N]
            suspend and resume through the whole product beside raw runsc, in turn, in one run
  starts [--rounds N]
            new actors, cold and from the golden snapshot, beside resumes of the same ones
  cluster [--rounds N]
            the installed chart on two real nodes beside local mode; what its pods take
  pages [--rounds N] [--quick]
            page tables, packs and indexes on images of real programs, one for each round
  s3 [--rounds N] [--quick]
            the driver of buckets beside curl, near and through a round trip of 20 ms
  transfer [--rounds N] [--mib N] [--link MIB/S] [--delay MS]
            a memory image to a bucket and back, without sandboxes, straight or through a link: CPU by thread

Ctrl-C ends it and removes what it has made.
`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "string" },
    rounds: { type: "string" },
    "max-mib": { type: "string", default: "1000" },
    mib: { type: "string", default: "1000" },
    link: { type: "string", default: "0" },
    delay: { type: "string", default: "0" },
    quick: { type: "boolean", default: false },
    users: { type: "string", default: "6" },
    minutes: { type: "string", default: "20" },
    folder: { type: "string" },
  },
});

type Result =
  BurninResult | LoopResult | PagesResult | S3Result | SnapshotsResult | StartsResult | ClusterResult | TransferResult;

function say(line: string): void {
  console.log(line);
}

function measured(name: string | undefined, signal: AbortSignal): Promise<Result> {
  const { quick, folder } = values;
  const rounds = Number(values.rounds ?? (quick ? 2 : 5));
  const minutes = Number(values.minutes);
  if (name === "snapshots") return snapshots({ quick, burninMinutes: minutes, folder, say, signal });
  if (name === "burnin") return burnin({ users: Number(values.users), minutes, folder, say, signal });
  if (name === "loop") return loop({ rounds, maxMib: Number(values["max-mib"]), say, signal });
  if (name === "cluster") return cluster({ rounds, say, signal });
  if (name === "starts") return starts({ rounds, say, signal });
  if (name === "pages") return pages({ generations: quick ? 4 : Math.max(8, rounds), say, signal });
  if (name === "s3") return s3({ rounds, quick, say, signal });
  if (name === "transfer") {
    const [mib, mibPerSecond, delayMs] = [Number(values.mib), Number(values.link), Number(values.delay)];
    return transfer({ rounds, mib, mibPerSecond, delayMs, say, signal });
  }
  throw new Error(usage);
}

async function run(signal: AbortSignal): Promise<void> {
  const result = await measured(positionals[0], signal);
  const { rows, rounds, ...keys } = result;
  for (const [name, value] of Object.entries(keys)) console.log(`${name.padEnd(24)} ${value.toFixed(3)}`);
  const conditions = { date: new Date().toISOString(), cpus: cpus().length, loadAverage: loadavg()[0], rounds };
  if (values.json !== undefined) {
    writeFileSync(values.json, `${JSON.stringify({ conditions, ...keys, rows }, undefined, 2)}\n`);
  }
}

const signal = interruption(say);
run(signal).then(
  () => process.exit(0),
  (error: unknown) => {
    // a suppressed error is a failure of the removal, too, which somebody has to see
    if (signal.aborted && !(error instanceof SuppressedError)) {
      console.error(`${(signal.reason as Error).message}; nothing of it is left`);
      process.exit(130);
    }
    console.error(error);
    process.exit(1);
  },
);
