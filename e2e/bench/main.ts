import { writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { loop } from "./loop.ts";

const usage = `npm run bench -- loop [--json FILE] [--rounds N] [--max-mib N]

  loop   suspend and resume through the whole product beside raw runsc, in turn, in one run
`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "string" },
    rounds: { type: "string", default: "5" },
    "max-mib": { type: "string", default: "1000" },
  },
});

async function run(): Promise<void> {
  if (positionals[0] !== "loop") throw new Error(usage);
  const result = await loop({
    rounds: Number(values.rounds),
    maxMib: Number(values["max-mib"]),
    say: (line) => {
      console.log(line);
    },
  });
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
