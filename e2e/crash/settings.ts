import { inject } from "vitest";
import { type Victim } from "./armed.ts";
import { type Operation, operations } from "./operations.ts";
import { type Crash } from "./point.ts";

declare module "vitest" {
  // what vitest.config.ts takes from the environment
  interface ProvidedContext {
    /** CRASH_SEED: repeats a sample or a chaos; "" for one of today's. */
    crashSeed: string;
    /** CRASH_POINT: `<operation>/<part>/<n>`, one point instead of a sample. */
    crashPoint: string;
    /** CRASH_OPERATION: `<operation>,<operation>`, only these, in this order; "" for all. */
    crashOperation: string;
    /** CHAOS_SECONDS: how long the chaos lasts. */
    chaosSeconds: string;
  }
}

export interface Point {
  operation: Operation;
  crash: Crash;
}

/** As CRASH_POINT takes it. */
export function nameOf({ operation, crash }: Point): string {
  return `${operation.name}/${crash.victim}/${crash.n}`;
}

/** The point that was asked for by name. @throws if there is no such operation or part. */
export function wantedPoint(): Point | undefined {
  const text = inject("crashPoint");
  if (text === "") return undefined;
  const [name, victim = "", n] = text.split("/");
  const operation = operations.find((known) => known.name === name);
  if (operation === undefined || !isVictim(victim) || !(Number(n) > 0))
    throw new Error(`CRASH_POINT=${text} is not <operation>/<atelet|operator>/<n>; operations: ${allNames()}`);
  return { operation, crash: { victim, n: Number(n) } };
}

/**
 * Those that were asked for by name, in that order, or the one of the point that was; all of them otherwise.
 * @throws if there is no such operation.
 */
export function wantedOperations(): readonly Operation[] {
  const point = wantedPoint();
  if (point !== undefined) return [point.operation];
  const text = inject("crashOperation");
  if (text === "") return operations;
  return text.split(",").map((name) => {
    const operation = operations.find((known) => known.name === name);
    if (operation === undefined) throw new Error(`CRASH_OPERATION: there is no ${name}; operations: ${allNames()}`);
    return operation;
  });
}

function allNames(): string {
  return operations.map(({ name }) => name).join(", ");
}

function isVictim(text: string): text is Victim {
  return text === "atelet" || text === "operator";
}

/** Another one at each run, unless CRASH_SEED names it. */
export function chosenSeed(): number {
  const text = inject("crashSeed");
  return text === "" ? Date.now() % 1_000_000 : Number(text);
}

export function chaosSeconds(): number {
  const text = inject("chaosSeconds");
  return text === "" ? 180 : Number(text);
}

/** Numbers from 0 to 1 that depend on the seed alone (mulberry32). */
export function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
