import { setTimeout as delay } from "node:timers/promises";
import { type ClusterProcess } from "@substrate/local/cluster.ts";
import { type Witness } from "./witness.ts";
import { type CrashWorld } from "./world.ts";

const victims: readonly ClusterProcess[] = [
  ...(["atelet", "atelet", "atelet", "operator", "operator", "router"] as const),
  ...(["kube-apiserver", "etcd", "supervisor"] as const),
];
const actors = 3;
const longestIdleMs = 2_500;
const longestBetweenKillsMs = 6_000;
const longestBetweenSuspendsMs = 3_000;

interface Subject {
  witness: Witness;
  /** The count that is certainly saved: a rollback goes back to it at most. */
  saved: number;
}

/** Clients, suspends and kills at random times; what a client may expect holds at every moment. */
export class Chaos {
  readonly #world: CrashWorld;
  readonly #random: () => number;
  readonly #subjects: Subject[];
  readonly #counts = new Map<string, number>();
  #over = false;

  constructor(world: CrashWorld, random: () => number) {
    this.#world = world;
    this.#random = random;
    this.#subjects = Array.from({ length: actors }, (_, i) => ({ witness: world.witness(`chaos-${i}`), saved: 0 }));
  }

  get violations(): string[] {
    return this.#subjects.flatMap(({ witness }) => witness.violations);
  }

  /** How often what was done, for people. */
  get summary(): string {
    return [...this.#counts].map(([what, times]) => `${times} ${what}`).join(", ");
  }

  /** Every actor has answered, and is saved once. */
  async begin(): Promise<void> {
    for (const subject of this.#subjects) {
      const { name } = subject.witness;
      await this.#world.create(name, "chaos");
      await this.#answers(subject, 60_000);
      subject.saved = subject.witness.answered;
      await this.#world.suspend(name, "Sync");
    }
  }

  async run(ms: number): Promise<void> {
    const working = [...this.#subjects.flatMap((subject) => [this.#client(subject), this.#sleeper(subject)])];
    working.push(this.#killer());
    await delay(ms);
    this.#over = true;
    await Promise.all(working);
  }

  /** Everything serves again, and each actor goes on from where it may. */
  async end(): Promise<void> {
    await this.#world.cluster.ready(120_000);
    for (const subject of this.#subjects) {
      await this.#answers(subject, 120_000);
      await this.#world.suspend(subject.witness.name, "Sync");
      await this.#answers(subject, 60_000);
    }
  }

  async remove(): Promise<void> {
    for (const { witness } of this.#subjects) await this.#world.remove(witness.name);
    for (const { witness } of this.#subjects) {
      await this.#world.gone(witness.name);
      await witness.close();
    }
  }

  async #answers({ witness }: Subject, deadlineMs: number): Promise<void> {
    await this.#world.until(`an answer of ${witness.name}`, deadlineMs, async () => (await witness.get()) === 200);
  }

  async #client({ witness }: Subject): Promise<void> {
    while (!this.#over) {
      const status = await witness.get();
      this.#count(status === 200 ? "answers" : `requests with ${status === 0 ? "no answer" : status}`);
      await this.#pause(this.#random() < 0.7 ? 100 : longestIdleMs);
    }
  }

  async #sleeper(subject: Subject): Promise<void> {
    while (!this.#over) {
      await this.#pause(longestBetweenSuspendsMs);
      const { name, answered } = subject.witness;
      const id = await this.#world.ask(name, this.#random() < 0.6 ? "Async" : "Sync");
      if (id === undefined) {
        this.#count("suspends refused");
        continue;
      }
      const result = await this.#outcome(name, id);
      if (result === "Succeeded") subject.saved = Math.max(subject.saved, answered);
      this.#count(`suspends ${result}`);
    }
  }

  /** An operator that is killed may take an operation with it before it was shown. */
  async #outcome(name: string, id: string): Promise<string> {
    const end = performance.now() + 20_000;
    while (performance.now() < end) {
      const actor = await this.#world.actor(name).catch(() => undefined);
      const last = actor?.status?.lastOperation;
      if (last?.id === id && last.result !== "Running") return last.result;
      await delay(100);
    }
    return "not heard of again";
  }

  async #killer(): Promise<void> {
    const { cluster } = this.#world;
    while (!this.#over) {
      await this.#pause(longestBetweenKillsMs);
      const victim = victims[Math.floor(this.#random() * victims.length)] ?? "atelet";
      if (cluster.pid(victim) === undefined) continue;
      const saved = this.#subjects.map((subject) => subject.saved);
      try {
        await cluster.kill(victim);
      } catch (error) {
        // it ended by itself just before, as the atelet does when its pod was killed
        if (cluster.pid(victim) !== undefined) throw error;
      }
      if (victim === "supervisor")
        this.#subjects.forEach(({ witness }, i) => {
          witness.mayRollBack(saved[i] ?? 0);
        });
      this.#count(`kills of the ${victim}`);
    }
  }

  async #pause(longestMs: number): Promise<void> {
    await delay(longestMs * this.#random());
  }

  #count(what: string): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1);
  }
}
