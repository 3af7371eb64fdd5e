import { type Generations } from "./generations.ts";
import { type ActorRecord, type Generation, type Origin } from "./record.ts";

/** What a start goes on from when nobody chooses. */
export type NextStart =
  | { kind: "generation"; generation: Generation }
  | { kind: "origin"; origin: Origin }
  /** From nothing, or but the volumes as they are. */
  | { kind: "cold" }
  /** Not at all: its state is damaged, there is no other, and to begin anew is a person's choice. */
  | { kind: "damaged"; generation: Generation };

export interface NextStartOptions {
  record: ActorRecord;
  generations: Generations;
}

/** The one place that decides it: a start does it, and a crash's message and a report say it. */
export function nextStart({ record, generations }: NextStartOptions): NextStart {
  const [generation] = generations.usable();
  if (generation !== undefined) return { kind: "generation", generation };
  const damaged = generations.damaged();
  if (damaged !== undefined) return { kind: "damaged", generation: damaged };
  const { origin, floor, volumes } = record;
  const savedSince = generations.all().some((own) => own.generation > floor);
  if (origin?.floor !== floor || savedSince) return { kind: "cold" };
  // It is no more than faster: what a program that was started cold instead has written is not given up for it.
  if (origin.golden && volumes.unsaved) return { kind: "cold" };
  return { kind: "origin", origin };
}

/** Whether the volumes hold what a program that was started cold from an origin has written since: that stays. */
export function wroteSince({ volumes: { stacks, unsaved } }: ActorRecord, originUid: string): boolean {
  return (
    unsaved && stacks.some(({ layers }) => layers.some((layer) => "origin" in layer && layer.origin === originUid))
  );
}

/** The same as the rest of a sentence that begins with "the next resume starts it"; empty: it does not. */
export function describeNextStart(options: NextStartOptions): string {
  const { record } = options;
  const volumes = (what: string): string => (record.volumes.stacks.length === 0 ? "" : `, ${what}`);
  const stay = volumes("with its volumes as they are");
  const next = nextStart(options);
  if (next.kind === "damaged") {
    const { generation, storage } = next.generation;
    return storage.unasked === true ? `from generation ${generation}, if the store has it` : "";
  }
  if (next.kind === "cold") return `anew${stay}`;
  const memory = next.kind === "origin" ? !wroteSince(record, next.origin.stored.prefix.actorUid) : isMemory(next);
  return memory ? `from ${sourceName(next)}${volumes("its volumes with it")}` : `cold from ${sourceName(next)}${stay}`;
}

function isMemory({ generation }: { generation: Generation }): boolean {
  return generation.fidelity === "Memory";
}

function sourceName(next: Exclude<NextStart, { kind: "cold" | "damaged" }>): string {
  if (next.kind === "generation") return `generation ${next.generation.generation}`;
  const { golden, stored } = next.origin;
  const name = stored.name.slice(stored.name.indexOf("/") + 1);
  return golden ? `the golden snapshot ${name}` : `tag ${name}`;
}
