import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorContext } from "./actor-context.ts";
import { type Generations } from "./generations.ts";
import { type ActorRecord, type Generation, type Origin, type StoredPrefix } from "./record.ts";

/** What a person, or an upgrade, chose to start from, instead of the newest usable generation. */
export type StartFrom =
  | { kind: "generation"; generation: number }
  /** A cold start with the newest volumes. */
  | { kind: "boot" }
  | { kind: "tag"; tag: StoredPrefix };

/** A tag as what an actor begins from, over what it has saved up to now. */
export function chosenTag({ tag }: { tag: Origin["stored"] }, floor: number): Origin {
  return { stored: tag, golden: false, floor, chosen: true };
}

type Chosen = Pick<ActorContext, "record" | "generations">;

/** Throws INVALID, saying what there is, when the actor has no such generation, or it can't be gone back to. */
export function chosenGeneration({ record, generations }: Chosen, number: number): Generation {
  const name = `${record.actor.namespace}/${record.actor.name}`;
  const candidates = generations.all().filter((generation) => generations.restorable(generation));
  const generation = candidates.find((candidate) => candidate.generation === number);
  if (generation === undefined) {
    const numbers = candidates.map((candidate) => candidate.generation).join(", ");
    throw new SubstrateError(
      "INVALID",
      `actor ${name} has no generation ${number} that can be restored; ` +
        (numbers === "" ? "it has none at all" : `there is ${numbers}`),
    );
  }
  const stored = generations.all().find(({ storage }) => storage.state === "COMPLETED");
  if (generation.storage.state !== "COMPLETED" && stored !== undefined && stored.generation > number) {
    // The store's head could not be put back to it, and a move would bring back what was given up.
    throw new SubstrateError(
      "INVALID",
      `actor ${name} cannot go back to generation ${number}: it is not in the store, and generation ` +
        `${stored.generation} is`,
    );
  }
  return generation;
}

/**
 * What the choice means for the actor's generations once its program runs; to be saved in one with the sandbox.
 * @returns how to take it back if it could not be saved.
 */
export function settleChoice({ record, generations }: Chosen, from: StartFrom): () => void {
  const { floor, rewind, litter, origin } = record;
  const storages = generations
    .all()
    .map((generation): [Generation, Generation["storage"]] => [generation, generation.storage]);
  if (from.kind === "generation") goBack(record, generations, from.generation);
  else record.floor = generations.newest()?.generation ?? 0;
  record.origin = from.kind === "tag" ? chosenTag(from, record.floor) : undefined;
  return () => {
    Object.assign(record, { floor, rewind, litter, origin });
    for (const [generation, storage] of storages) generation.storage = storage;
  };
}

function goBack(record: ActorRecord, generations: Generations, number: number): void {
  const newer = generations.all().filter(({ generation, storage }) => generation > number && storage.state !== "LOST");
  record.floor = number - 1;
  const headIsNewer = newer.some(({ storage }) => storage.state === "COMPLETED");
  const manifest = generations.get(number)?.storage.manifest ?? "";
  if (headIsNewer) record.rewind = { generation: number, manifest };
  record.litter = [
    ...record.litter,
    ...newer
      // What has a manifest is collected with the next upload like any older one; of the others parts may be there.
      .filter(({ storage }) => storage.manifest === "" && storage.message !== "")
      .map(({ generation, epoch }) => ({ generation, epoch })),
  ];
  for (const generation of newer) generations.lose(generation, `given up: a person went back to generation ${number}`);
}

/** The files of what was given up go from the node; what is in the store goes with the next upload. */
export async function removeGivenUp({ generations, log }: ActorContext, number: number): Promise<void> {
  for (const { generation } of generations.all().filter((candidate) => candidate.generation > number)) {
    try {
      await generations.evict(generation);
    } catch (error) {
      log.warn("files of a generation that was given up could not be removed", { generation, error });
    }
  }
}

/**
 * Puts the store's head back to the generation that a person went back to, so that a move can't bring back what was
 * given up. What fails is remembered, and tried again before the actor may leave this node.
 */
export async function rewindHead({ node, record, prefix, generations, save }: ActorContext): Promise<void> {
  const { rewind } = record;
  if (rewind === undefined) return;
  const newest = generations.usable()[0];
  // A generation that was stored since is what the head names now.
  const passed = newest !== undefined && newest.generation > rewind.generation && newest.storage.state === "COMPLETED";
  if (!passed) await node.store(record.program.store).rewind(prefix, record.grant.epoch, rewind.manifest);
  record.rewind = undefined;
  await save({ durable: false });
}
