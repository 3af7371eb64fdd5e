import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { type Manifest } from "../store/store.ts";
import { type ActorContext } from "./actor-context.ts";
import { type Generation } from "./record.ts";

type Context = Pick<ActorContext, "node" | "record" | "prefix" | "generations">;

/** Of a damage in the store: says what else there is to go back to, and what of it is no help. */
export async function withOlder(context: Context, { generation }: Generation, thrown: unknown): Promise<unknown> {
  const error = asSubstrateError(thrown);
  if (error.code !== "SNAPSHOT_DAMAGED") return thrown;
  const { record, generations } = context;
  const sharing: number[] = [];
  let fix: string | undefined;
  for (const older of generations.all()) {
    if (older.generation >= generation || !generations.restorable(older)) continue;
    if (await needs(context, older, error.message)) {
      sharing.push(older.generation);
      continue;
    }
    fix = `"kubectl ate resume ${record.actor.name} --from ${older.generation}" goes back to the next older generation`;
    break;
  }
  const same =
    sharing.length === 0
      ? ""
      : `; generation${sharing.length === 1 ? "" : "s"} ${sharing.join(" and ")} cannot be restored without the same object either`;
  const otherwise = "no older generation can be restored: bring the object back from a backup; --boot starts it cold";
  const message = `generation ${generation} cannot be restored: ${error.message}${same}; ${fix ?? otherwise}`;
  return new SubstrateError(error.code, message, { cause: error });
}

/**
 * Whether a restore of a generation would read the object that is damaged, which the message names, as all of the store's
 * do. What is whole on the node needs nothing of the store; what can't be looked at counts as needing it.
 */
async function needs(
  { node, record, prefix, generations }: Context,
  older: Generation,
  damage: string,
): Promise<boolean> {
  const local = generations.local(older.generation);
  try {
    if (local !== undefined && (await generations.damage(local)) === undefined) return false;
    const manifest = await node.store(record.program.store).manifest(prefix, older.storage.manifest);
    return packNames(manifest).some((name) => damage.includes(name));
  } catch (error) {
    const { code } = asSubstrateError(error);
    if (code === "SNAPSHOT_DAMAGED" || code === "STORE_UNAVAILABLE" || code === "RESTORE_FAILED") return true;
    throw error;
  }
}

/** Under each of which a message may speak of a pack. */
function packNames({ pages }: Pick<Manifest, "pages">): string[] {
  return (pages?.packs ?? []).flatMap(({ key, at }) => [key, ...(at === undefined ? [] : [at])]);
}
