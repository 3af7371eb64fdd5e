import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { belongings } from "../support/leftovers.ts";
import { CrashPoints } from "./point.ts";
import { chosenSeed, nameOf, type Point, randomOf, wantedOperations, wantedPoint } from "./settings.ts";
import { CrashWorld } from "./world.ts";

/** Of the tests' time this much; on a busy machine the sample is smaller. */
const sampleMs = 60_000;
const mostPoints = 24;
/** One point in so many ends the operator. */
const operatorShare = 0.3;

/** A sample of every.full.ts, which takes all of them. */
// a fault that shows once is one: never tried again
describe("a part that ends at any step of an operation", { concurrent: false, timeout: 300_000, retry: 0 }, () => {
  let world: CrashWorld | undefined;
  let points: CrashPoints | undefined;
  const operations = wantedOperations();
  /** How many steps each part has in each operation. */
  const counts = new Map<string, { atelet: number; operator: number }>();

  beforeAll(async () => {
    world = await CrashWorld.start();
    points = new CrashPoints(world);
  });
  afterAll(async () => {
    if (world === undefined) return;
    const { stateDir, id } = world.cluster;
    await world.stop();
    expect(belongings(stateDir, id)).toEqual([]);
  });

  it("undisturbed, each operation leaves the world as it should be", async () => {
    for (const operation of operations) {
      const result = await points?.run(operation);
      expect(result?.wrong, operation.name).toEqual([]);
      const { atelet = [], operator = [] } = result?.steps ?? {};
      // A process that is started costs milliseconds: on the way of a wake from the node it is runsc alone.
      if (operation.name === "resume-node" || operation.name === "volume-resume-node")
        expect(atelet.filter((step) => /^(spawn|execFile) (?!runsc )/.test(step))).toEqual([]);
      counts.set(operation.name, { atelet: atelet.length, operator: operator.length });
    }
  });

  it("loses nothing, leaves nothing and blocks nothing", async () => {
    const seed = chosenSeed();
    const wanted = wantedPoint();
    const end = performance.now() + sampleMs;
    const chosen = wanted === undefined ? sample(seed) : [wanted];
    let hit = 0;
    for (const point of chosen) {
      if (performance.now() > end) break;
      const result = await points?.run(point.operation, point.crash);
      if (result?.step !== undefined) hit += 1;
      const where = `CRASH_POINT=${nameOf(point)} (CRASH_SEED=${seed}), ended at: ${result?.step ?? "nothing"}`;
      expect(result?.wrong, where).toEqual([]);
    }
    process.stdout.write(`crash points: ${hit} of ${chosen.length} drawn by CRASH_SEED=${seed} were hit\n`);
    expect(hit).toBeGreaterThan(0);
  });

  it("ends with an empty world", async () => {
    expect(await points?.finish()).toEqual([]);
  });

  function sample(seed: number): Point[] {
    const random = randomOf(seed);
    return Array.from({ length: mostPoints }, () => {
      const victim = random() < operatorShare ? "operator" : "atelet";
      const operation = operations[Math.floor(random() * operations.length)];
      if (operation === undefined) throw new Error("there are no operations");
      const steps = counts.get(operation.name)?.[victim] ?? 1;
      return { operation, crash: { victim, n: 1 + Math.floor(random() * steps) } };
    });
  }
});
