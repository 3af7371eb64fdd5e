import { inspect } from "node:util";
import { type Victim } from "./armed.ts";
import { rest, settle } from "./invariants.ts";
import { type Operation } from "./operations.ts";
import { type Witness } from "./witness.ts";
import { type CrashWorld, type TemplateName } from "./world.ts";

const settleMs = 30_000;
const runMs = 90_000;
/** Of the actor from which forks begin, and of its tag. */
const forkedTag = "origin";

export interface Crash {
  victim: Victim;
  /** At which of its steps it ends. */
  n: number;
}

export interface PointResult {
  /** Where it ended; undefined if the operation has fewer steps. */
  step: string | undefined;
  /** What each part did, in order. */
  steps: Record<Victim, string[]>;
  /** What was wrong afterwards. */
  wrong: string[];
}

/** One counter after another in one world, at whose operations a part is made to end. */
export class CrashPoints {
  readonly #world: CrashWorld;
  readonly #witnesses = new Map<string, Witness>();
  #made = 0;
  #origin: Witness | undefined;

  constructor(world: CrashWorld) {
    this.#world = world;
  }

  /** Runs the operation, in which a part may be made to end. Then everything must be as it should be. */
  async run(operation: Operation, crash?: Crash): Promise<PointResult> {
    const world = this.#world;
    const { armed, cluster } = world;
    const witness = await this.#begin(operation);
    // what is under way from before must not be counted
    const before = await settle(cluster, settleMs);
    if (before.length > 0) throw new Error(`before ${operation.name} began: ${before.join("; ")}`);
    const pid = crash && cluster.pid(crash.victim);
    const wrong: string[] = [];
    for (const victim of ["atelet", "operator"] as const) armed.arm(victim, crash?.victim === victim ? crash.n : 0);
    if (operation.begins === "fresh") await world.create(witness.name, operation.template);
    if (operation.begins === "fork") await world.create(witness.name, operation.template, forkedTag);
    const ended = this.#bounded(operation, witness).catch((error: unknown) => {
      wrong.push(`${operation.name} got stuck: ${inspect(error)}`);
    });
    if (crash !== undefined) {
      await Promise.race([ended, this.#fired(crash.victim, ended)]);
      if (armed.fired(crash.victim)) await world.restarted(crash.victim, pid);
    }
    await ended;
    wrong.push(...(await settle(cluster, settleMs)));
    const hit = crash !== undefined && armed.fired(crash.victim);
    const steps = { atelet: armed.disarm("atelet"), operator: armed.disarm("operator") };
    wrong.push(...(await this.#goesOn(operation, witness)));
    return { step: hit ? steps[crash.victim][crash.n - 1] : undefined, steps, wrong };
  }

  /** Everything that was made, removed. @returns what is then left. */
  async finish(): Promise<string[]> {
    for (const { name } of this.#witnesses.values()) await this.#world.remove(name);
    for (const witness of this.#witnesses.values()) {
      await this.#world.gone(witness.name);
      await witness.close();
    }
    this.#witnesses.clear();
    this.#origin = undefined;
    await this.#world.untagAll();
    return rest(this.#world.cluster, settleMs);
  }

  async #bounded(operation: Operation, witness: Witness): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => {
        reject(new Error(`not ended within ${runMs / 1000} s`));
      }, runMs);
    });
    try {
      await Promise.race([operation.run(this.#world, witness), late]);
    } finally {
      clearTimeout(timer);
    }
  }

  async #fired(victim: Victim, ended: Promise<void>): Promise<void> {
    let over = false;
    void ended.then(() => {
      over = true;
    });
    await this.#world.until(`${victim} ended`, runMs + settleMs, () =>
      Promise.resolve(over || this.#world.armed.fired(victim)),
    );
  }

  /** Whether the actor answers with the right count, and then sleeps; or is gone for good. */
  async #goesOn({ ends, name: operation }: Operation, witness: Witness): Promise<string[]> {
    const world = this.#world;
    const { name } = witness;
    const wrong: string[] = [];
    if (ends === "gone") {
      if ((await world.actor(name)) !== undefined) wrong.push(`actor ${name} is still there`);
      await this.#forget(witness);
      return wrong;
    }
    try {
      await world.until(`an answer of ${name} after ${operation}`, 30_000, async () => (await witness.get()) === 200);
      // that it wakes again is for the next point to see
      await world.suspend(name, "Async");
    } catch (error) {
      wrong.push(`stuck: ${inspect(error)}`);
    }
    wrong.push(...witness.violations.splice(0));
    return wrong;
  }

  async #begin({ template, begins }: Operation): Promise<Witness> {
    const world = this.#world;
    const old = this.#witnesses.get(template);
    if ((begins === "fresh" || begins === "fork") && old !== undefined) {
      await world.remove(old.name);
      await world.gone(old.name);
      await this.#forget(old);
    }
    const witness = this.#witnesses.get(template) ?? this.#make(template);
    if (begins === "fork") witness.beginsFrom(await this.#forkOrigin(template));
    if (begins === "fresh" || begins === "fork") return witness;
    const { name } = witness;
    const actor = await world.actor(name);
    if (actor === undefined) await world.create(name, template);
    const isPending = actor?.status?.snapshots?.[0]?.storageState === "SNAPSHOT_STORAGE_STATE_PENDING";
    const sleeps = actor?.status?.state === "ACTOR_STATE_SUSPENDED" && isPending;
    if (begins === "running" || !sleeps)
      await world.until(`an answer of ${name}`, 60_000, async () => (await witness.get()) === 200);
    if (begins === "asleep" && !sleeps) await world.suspend(name, "Async");
    if (begins === "stored" || begins === "detached") await world.suspend(name, "Sync");
    if (begins === "detached") await world.detached(name);
    return witness;
  }

  /** The actor of which there is a tag, made once. */
  async #forkOrigin(template: TemplateName): Promise<Witness> {
    if (this.#origin !== undefined) return this.#origin;
    const world = this.#world;
    const origin = world.witness(forkedTag);
    await world.create(origin.name, template);
    await world.until(`an answer of ${origin.name}`, 60_000, async () => (await origin.get()) === 200);
    await world.suspend(origin.name, "Async");
    await world.tag(origin.name, forkedTag);
    // a tag outlives its actor
    await world.remove(origin.name);
    await world.gone(origin.name);
    await origin.close();
    this.#origin = origin;
    return origin;
  }

  #make(template: string): Witness {
    this.#made += 1;
    const witness = this.#world.witness(`${template}-${this.#made}`);
    this.#witnesses.set(template, witness);
    return witness;
  }

  async #forget(witness: Witness): Promise<void> {
    for (const [template, known] of this.#witnesses) if (known === witness) this.#witnesses.delete(template);
    await witness.close();
  }
}
