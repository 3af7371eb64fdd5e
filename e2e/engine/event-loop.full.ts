import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, it } from "vitest";
import { median } from "../bench/statistics.ts";
import { MemoryRig } from "./memory.ts";

const ROUNDS = 9;
const HELD_MIB = 1000;
const P99 = "substrate_nodejs_eventloop_lag_p99_seconds";

/** A process that does nothing but say, whenever a line comes, what its loop's p99 delay was since the line before. */
const idleProgram = `
import { monitorEventLoopDelay } from "node:perf_hooks";
const delay = monitorEventLoopDelay({ resolution: 10 });
delay.enable();
process.stdin.on("data", () => {
  process.stdout.write(delay.percentile(99) / 1e6 + "\\n");
  delay.reset();
});`;

let rig: MemoryRig | undefined;
const started = (): MemoryRig => {
  if (rig === undefined) throw new Error("the cluster did not start");
  return rig;
};
beforeAll(async () => {
  rig = await MemoryRig.start();
  await rig.template("large", HELD_MIB + 300);
  await rig.product.actor("large", "large");
  await rig.ask("large", `/hold?mib=${HELD_MIB}&kind=random`);
}, 180_000);
afterAll(async () => {
  await rig?.stop();
}, 60_000);

it("the atelet's event loop waits at most 10 ms longer in a suspend of 1,000 MiB than one that does nothing", async () => {
  const own = started();
  const idle = spawn(process.execPath, ["--input-type=module", "--eval", idleProgram], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  try {
    const lines = createInterface({ input: idle.stdout })[Symbol.asyncIterator]();
    const idleMs = async (): Promise<number> => {
      idle.stdin.write("\n");
      return Number((await lines.next()).value);
    };
    // each look begins anew
    const ateletMs = (): Promise<number> => own.metric(P99).then((seconds) => seconds * 1000);
    const rounds: { ateletMs: number; idleMs: number }[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      await own.ask("large", "/", "GET");
      await Promise.all([idleMs(), ateletMs()]);
      await own.product.suspend("large", "Async");
      const [during, beside] = await Promise.all([ateletMs(), idleMs()]);
      rounds.push({ ateletMs: during, idleMs: beside });
    }
    const over = rounds.map((one) => one.ateletMs - one.idleMs);
    const text = rounds.map((one) => `${one.ateletMs.toFixed(1)}/${one.idleMs.toFixed(1)}`).join(" ");
    process.stdout.write(`p99 delay, atelet/idle, ms: ${text}; median difference ${median(over).toFixed(1)}\n`);
    expect(median(over)).toBeLessThanOrEqual(10);
  } finally {
    idle.stdin.end();
    idle.kill();
    await once(idle, "exit");
  }
}, 600_000);
