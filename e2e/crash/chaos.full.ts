import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { belongings } from "../support/leftovers.ts";
import { Chaos } from "./chaos.ts";
import { settle } from "./invariants.ts";
import { chaosSeconds, chosenSeed, randomOf } from "./settings.ts";
import { CrashWorld } from "./world.ts";

const settleMs = 120_000;

describe("kills at random", { concurrent: false }, () => {
  let world: CrashWorld | undefined;

  beforeAll(async () => {
    world = await CrashWorld.start(["chaos"]);
  });
  afterAll(async () => {
    if (world === undefined) return;
    const { stateDir, id } = world.cluster;
    await world.stop();
    expect(belongings(stateDir, id)).toEqual([]);
  });

  it("never show a client an older state than was saved, and leave nothing", async () => {
    if (world === undefined) throw new Error("the cluster did not start");
    const seed = chosenSeed();
    const seconds = chaosSeconds();
    const chaos = new Chaos(world, randomOf(seed));
    await chaos.begin();
    await chaos.run(seconds * 1000);
    process.stdout.write(`chaos of ${seconds} s, CRASH_SEED=${seed}: ${chaos.summary}\n`);
    await chaos.end();
    const wrong = [...chaos.violations, ...(await settle(world.cluster, settleMs))];
    await chaos.remove();
    wrong.push(...(await settle(world.cluster, settleMs)));
    expect(wrong, `CRASH_SEED=${seed}`).toEqual([]);
  });
});
