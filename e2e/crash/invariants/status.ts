import { type Actor } from "@substrate/crds/index.ts";
import { type NodeActor, type World } from "./world.ts";

function short(state: string | undefined): string {
  return (state ?? "").replace(/^(ACTOR_STATE|SNAPSHOT_STORAGE_STATE|SNAPSHOT_OWNER)_/, "");
}

/** Settled: nothing is under way, and what the status says of the node is what the node says. */
function* ofActor(actor: Actor, onNode: NodeActor | undefined): Generator<string> {
  const { metadata, status } = actor;
  const what = `actor ${metadata.name}`;
  if (metadata.deletionTimestamp !== undefined) yield `${what} is still being deleted`;
  const state = short(status?.state);
  if (!["RUNNING", "SUSPENDED"].includes(state))
    yield `${what} is ${state === "" ? "without a state" : state}: ${status?.crash?.message ?? ""}`;
  const ready = status?.conditions?.find(({ type }) => type === "Ready");
  if (ready?.status !== "True") yield `${what} is not Ready: ${ready?.reason ?? ""} ${ready?.message ?? ""}`;
  if (status?.lastOperation?.result === "Running") {
    const { type, id } = status.lastOperation;
    yield `${what}: operation ${type} ${id} is shown as running`;
  }
  const here = status?.assignment?.nodeName !== undefined;
  if (here !== (onNode?.record !== undefined))
    yield `${what} is ${here ? "" : "not "}assigned, and ${onNode?.record === undefined ? "not " : ""}on the node`;
  if ((state === "RUNNING") !== (onNode?.running ?? false))
    yield `${what} is ${state}, and on the node it ${onNode?.running === true ? "runs" : "does not run"}`;
  if (onNode?.record === undefined) return;
  const { generations } = onNode.record;
  const known = generations.map(({ generation, storage }) => `${generation} ${storage.state}`).join(", ");
  const shown = (status?.snapshots ?? [])
    .map(({ generation, storageState }) => `${generation} ${short(storageState)}`)
    .join(", ");
  if (shown !== known) yield `${what}: the status shows generations ${shown}, the node has ${known}`;
  const newest = generations[0]?.generation ?? 0;
  if ((status?.generation ?? 0) !== newest)
    yield `${what}: status.generation is ${status?.generation}, the node's newest ${newest}`;
}

/** Snapshot objects that the operator keeps for actors: one for each COMPLETED generation that a status shows. */
function* ofSnapshots({ actors, snapshots }: World): Generator<string> {
  const expected = actors
    .flatMap(({ status }) => status?.snapshots ?? [])
    .filter(({ storageState, owner }) => short(storageState) === "COMPLETED" && short(owner) === "ACTOR")
    .map(({ name }) => name);
  const owned = snapshots.filter(({ status }) => short(status?.owner ?? "ACTOR") === "ACTOR");
  for (const name of expected)
    if (!owned.some(({ metadata }) => metadata.name === name)) yield `there is no Snapshot ${name}`;
  for (const { metadata, status } of owned) {
    if (!expected.includes(metadata.name)) yield `Snapshot ${metadata.name} is of no generation that a status shows`;
    else if (short(status?.storageState) !== "COMPLETED")
      yield `Snapshot ${metadata.name} is ${short(status?.storageState)}`;
  }
}

/** What the API says against what is. */
export function* statusViolations(world: World): Generator<string> {
  for (const actor of world.actors)
    yield* ofActor(
      actor,
      world.nodeActors.find(({ uid }) => uid === actor.metadata.uid),
    );
  yield* ofSnapshots(world);
}
