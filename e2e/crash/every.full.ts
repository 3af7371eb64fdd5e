import { inspect } from "node:util";
import { afterAll, describe, expect, it } from "vitest";
import { type Victim } from "./armed.ts";
import { CrashPoints, type PointResult } from "./point.ts";
import { nameOf, type Point, wantedOperations } from "./settings.ts";
import { CrashWorld } from "./world.ts";

/** Of one operation: then the rest of its steps would say nothing new. */
const tooManyFaults = 10;

/** A world is made anew after a point that left it wrong, so that one fault does not hide the others. */
class Worlds {
  #world: CrashWorld | undefined;
  #points: CrashPoints | undefined;

  async run({ operation, crash }: Point): Promise<PointResult & { begun: true }> {
    this.#world ??= await CrashWorld.start();
    this.#points ??= new CrashPoints(this.#world);
    try {
      const result = await this.#points.run(operation, crash);
      if (result.wrong.length > 0) await this.stop();
      return { ...result, begun: true };
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  /** @returns what is left when all that was made is removed. */
  async finish(): Promise<string[]> {
    return (await this.#points?.finish()) ?? [];
  }

  async stop(): Promise<void> {
    const world = this.#world;
    this.#world = undefined;
    this.#points = undefined;
    await world?.stop();
  }
}

/** The point before left something that shows only now: this one is still to be taken, in a new world. */
function notBegun(error: unknown): Pick<PointResult, "step" | "wrong"> & { begun: false } {
  return { begun: false, step: "its beginning", wrong: [inspect(error)] };
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Each part has a world of its own, both at the same time. */
describe.each<Victim>(["atelet", "operator"])("%s", { concurrent: true }, (victim) => {
  const worlds = new Worlds();
  afterAll(() => worlds.stop());

  it("may end at every step of every operation", async () => {
    const startMs = performance.now();
    const faults: string[] = [];
    const counts: string[] = [];
    for (const operation of wantedOperations()) {
      let hit = 0;
      const faultsBefore = faults.length;
      while (faults.length - faultsBefore < tooManyFaults) {
        const point: Point = { operation, crash: { victim, n: hit + 1 } };
        const { step, wrong, begun } = await worlds.run(point).catch(notBegun);
        if (wrong.length > 0) {
          faults.push(`${nameOf(point)}, at "${step ?? "no step"}": ${wrong.join("; ")}`);
          say(`fault: ${faults.at(-1) ?? ""}`);
        }
        if (step === undefined) break;
        if (begun) hit += 1;
      }
      counts.push(`${operation.name} ${hit}`);
      say(`${victim} ended at each of ${hit} steps of ${operation.name}`);
    }
    faults.push(...(await worlds.finish()));
    const minutes = ((performance.now() - startMs) / 60_000).toFixed(0);
    say(`${victim}: ${counts.join(", ")}; ${faults.length} faults; ${minutes} minutes`);
    expect(faults).toEqual([]);
  });
});
