import { writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { cluster, type ClusterResult } from "./cluster.ts";
import { loop, type LoopResult } from "./loop.ts";
import { starts, type StartsResult } from "./starts.ts";

const usage = `npm run bench -- NAME [--json FILE] [--rounds N] [--max-mib N]

  loop     suspend and resume through the whole product beside raw runsc, in turn, in one run
  starts   new actors, cold and from the golden snapshot, beside resumes of the same ones
  cluster  the installed chart on two real nodes beside local mode; what its pods take
`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "string" },
    rounds: { type: "string", default: "5" },
    "max-mib": { type: "string", default: "1000" },
  },
});

function measured(name: string | undefined): Promise<LoopResult | StartsResult | ClusterResult> {
  const rounds = Number(values.rounds);
  const say = (line: string): void => {
    console.log(line);
  };
  if (name === "loop") return loop({ rounds, maxMib: Number(values["max-mib"]), say });
  if (name === "cluster") return cluster({ rounds, say });
  if (name === "starts") return starts({ rounds, say });
  throw new Error(usage);
}

async function run(): Promise<void> {
  const result = await measured(positionals[0]);
  const { rows, rounds, ...keys } = result;
  for (const [name, value] of Object.entries(keys)) console.log(`${name.padEnd(22)} ${value.toFixed(3)}`);
  const conditions = { date: new Date().toISOString(), cpus: cpus().length, loadAverage: loadavg()[0], rounds };
  if (values.json !== undefined) {
    writeFileSync(values.json, `${JSON.stringify({ conditions, ...keys, rows }, undefined, 2)}\n`);
  }
}

run().then(
  () => process.exit(0),
  (error: unknown) => {
    console.error(error);
    process.exit(1);
  },
);
