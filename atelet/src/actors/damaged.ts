import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorContext } from "./actor-context.ts";
import { type NextStartOptions, nextStart } from "./next-start.ts";
import { type Generation } from "./record.ts";

/** A generation that is damaged here and not in the store is lost; what is left of it is kept. */
export async function loseDamaged(
  { generations, log }: Pick<ActorContext, "generations" | "log">,
  generation: Generation,
  damage: string,
): Promise<void> {
  const { generation: number } = generation;
  log.error("the only copy of a snapshot is damaged: it is set aside", { generation: number, damage });
  try {
    await generations.setAside(generation, damage);
  } catch (error) {
    log.error("a damaged snapshot could not be set aside; it stays where it is", { generation: number, error });
  }
}

/**
 * Why nothing starts an actor by itself whose newest state is damaged, while there is no other; undefined: it may. Before
 * the store was asked nobody here knows that there is none.
 */
export function onlyDamaged(options: NextStartOptions): SubstrateError | undefined {
  const next = nextStart(options);
  const isKnown =
    options.record.claim.state !== "needed" && next.kind === "damaged" && !next.generation.storage.unasked;
  return isKnown ? damagedError(options, next.generation) : undefined;
}

/** Of a start from a generation that is damaged; names what there is instead. */
export function damagedError({ record, generations }: NextStartOptions, damaged: Generation): SubstrateError {
  const { generation, storage } = damaged;
  const { namespace, name } = record.actor;
  const resume = `"kubectl ate resume ${name}`;
  const [usable] = generations.usable();
  const older = generations.all().find((one) => one.generation < generation && generations.restorable(one));
  const volumes = record.program.volumeMounts.length === 0 ? "" : " with what is here of its volumes";
  const choices = [
    ...(older === undefined ? [] : [`${resume} --from ${older.generation}" goes back to an older generation`]),
    `${resume} --from TAG" starts it from a tag`,
    `${resume} --boot" begins anew${volumes}`,
  ];
  const path = generations.asidePath(generation);
  const evidence = path === undefined ? "" : `; what is left of it is kept on its node in ${path}`;
  const stop = usable === undefined ? "There is no other state to go on from, so nothing starts it by itself: " : "";
  const message = `generation ${generation} of actor ${namespace}/${name} is lost: ${storage.message}. ${stop}${choices.join(", ")}${evidence}`;
  return new SubstrateError("SNAPSHOT_DAMAGED", message);
}
