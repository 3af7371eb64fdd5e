import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { WARM_BYTES } from "@substrate/atelet/warm/warm-slots.ts";
import { PodCgroup } from "@substrate/local/pod/pod-cgroup.ts";
import { z } from "zod";
import { livingUsers } from "./store.ts";
import { namesIn, type NodeActor, stackSchema, type World } from "./world.ts";

/** What the runtime takes beside the program's own memory (writeback.md). */
const overheadBytes = 32 * 2 ** 20;
const unfinished = /\.(partial|deleted|tmp|new)$/;

const generationSchema = z.object({
  volumes: z.array(stackSchema).default([]),
  files: z.array(z.object({ name: z.string(), sizeBytes: z.number() })),
});

/** Every generation's folder is whole and known; a PENDING one has its files. */
function* ofGenerations({ uid, dir, record }: NodeActor): Generator<string> {
  const folder = join(dir, "generations");
  const known = record?.generations ?? [];
  for (const name of namesIn(folder)) {
    if (known.some(({ generation, storage }) => `${generation}.unreadable` === name && storage.state === "LOST"))
      continue;
    if (!known.some(({ generation }) => String(generation) === name)) {
      yield `${folder}/${name} is no generation of actor ${uid}`;
      continue;
    }
    const text = readFileSync(join(folder, name, "generation.json"), "utf8");
    for (const { name: file, sizeBytes } of generationSchema.parse(JSON.parse(text)).files) {
      const path = join(folder, name, "image", file);
      if (!existsSync(path) || statSync(path).size !== sizeBytes) yield `${path} has not its ${sizeBytes} bytes`;
    }
  }
  const stored = known.filter(({ storage }) => storage.state === "COMPLETED").length;
  const history = record?.program.history ?? 0;
  if (stored > history) yield `actor ${uid} has ${stored} COMPLETED generations; ${history} are to be kept`;
  for (const { generation, storage } of known) {
    if (storage.state === "PENDING" && !existsSync(join(folder, String(generation))))
      yield `generation ${generation} of actor ${uid} is PENDING and its files are gone`;
  }
}

/** Own layers of the overlay that a running sandbox has of a volume: older ones than its stack names, if these were made one since. */
function mountedLayers(mountPoint: string, mounts: readonly string[]): string[] {
  const overlay = mounts.find((line) => line.split(" ")[4] === mountPoint) ?? "";
  return [...overlay.matchAll(/[:=]layers\/(\d+)\/data/g)].map((match) => match[1] ?? "");
}

/** Every layer of a volume is in the stack of a generation here, in the live one, or mounted. */
function* ofVolumes({ dir, record }: NodeActor, mounts: readonly string[]): Generator<string> {
  const generations = namesIn(join(dir, "generations")).map((name) =>
    generationSchema.parse(JSON.parse(readFileSync(join(dir, "generations", name, "generation.json"), "utf8"))),
  );
  const stacks = [...(record?.volumes.stacks ?? []), ...generations.flatMap(({ volumes }) => volumes)];
  for (const volume of namesIn(join(dir, "volumes"))) {
    const home = join(dir, "volumes", volume);
    const named = stacks
      .filter(({ name }) => name === volume)
      .flatMap(({ layers }) => layers.flatMap((layer) => ("own" in layer ? [String(layer.own)] : [])));
    named.push(...mountedLayers(join(home, "mnt"), mounts));
    for (const layer of namesIn(join(home, "layers")))
      if (!named.includes(layer)) yield `${home}/layers/${layer} is in no stack`;
  }
}

/** Whether the store still has packs of a deleted Snapshot for actors that came from it. */
function isUsed(uid: string, world: World): boolean {
  const { storeDir } = world.cluster;
  const dirs = readdirSync(storeDir, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(`/${uid}`));
  return dirs.some((dir) => livingUsers(join(storeDir, dir), world).length > 0);
}

/** No file whose name says that something was not finished, and no folder of an actor that is gone. */
function* ofFiles(world: World): Generator<string> {
  const { cluster, atelet, actors, snapshots, nodeActors } = world;
  const { nodeDir } = cluster;
  for (const name of namesIn(join(nodeDir, "tombstones")))
    if (!isUsed(name.replace(".json", ""), world)) yield `${nodeDir}/tombstones/${name} waits`;
  for (const uid of namesIn(join(nodeDir, "origins")))
    if (!snapshots.some(({ metadata }) => metadata.uid === uid)) yield `${nodeDir}/origins/${uid} is of no Snapshot`;
  for (const entry of readdirSync(nodeDir, { recursive: true, encoding: "utf8" })) {
    if (entry.startsWith("images/") && !entry.startsWith("images/.tmp/")) continue;
    if (unfinished.test(entry) || entry.startsWith("images/.tmp/") || entry.startsWith("trials/"))
      yield `${nodeDir}/${entry} is left over`;
  }
  const mounts = readFileSync(`/proc/${atelet}/mountinfo`, "utf8").split("\n");
  for (const actor of nodeActors) {
    if (!actors.some(({ metadata }) => metadata.uid === actor.uid)) yield `${actor.dir} is of no actor`;
    if (actor.record === undefined) yield `${actor.dir} has no record`;
    yield* ofGenerations(actor);
    yield* ofVolumes(actor, mounts);
  }
}

/** runsc's files are those of running actors. */
function* ofSandboxes({ cluster, nodeActors, warm }: World): Generator<string> {
  const root = join(cluster.nodeDir, "runsc");
  const ids = [...warm, ...nodeActors.flatMap(({ sandboxId }) => sandboxId ?? [])];
  for (const folder of ["s", "r", "l"]) {
    for (const name of namesIn(join(root, folder)))
      if (name !== "null-netns" && !ids.some((id) => name.includes(id))) yield `${root}/${folder}/${name} is left over`;
  }
}

function* ofCgroups({ cluster, nodeActors, warm }: World): Generator<string> {
  const ids = [...warm, ...nodeActors.flatMap(({ sandboxId }) => sandboxId ?? [])];
  for (const pod of new PodCgroup(cluster.id).folders()) {
    for (const entry of namesIn(join(pod, "actors"))) {
      const folder = join(pod, "actors", entry);
      if (statSync(folder).isDirectory() && !ids.includes(entry)) yield `${folder} is left over`;
    }
    const snapshots = join(pod, "snapshots");
    const folders = namesIn(snapshots).map((entry) => join(snapshots, entry));
    for (const folder of [snapshots, ...folders.filter((path) => statSync(path).isDirectory())]) {
      const procs = join(folder, "cgroup.procs");
      if (existsSync(procs) && readFileSync(procs, "utf8") !== "") yield `${folder} still has processes`;
    }
  }
}

function* ofLedger({ nodeActors, warm, metric }: World): Generator<string> {
  const running = nodeActors.filter((actor) => actor.running);
  const expected = running.reduce((sum, { record }) => sum + (record?.program.memoryBytes ?? 0) + overheadBytes, 0);
  const booked = metric('substrate_ledger_bytes{kind="booked"}');
  if (booked !== expected) yield `the ledger has ${booked} bytes booked; running actors have ${expected}`;
  const waiting = metric("substrate_warm_sandboxes");
  if (waiting !== warm.length) yield `${waiting} sandboxes wait for an actor, ${warm.length} have a folder`;
  const warmBytes = metric('substrate_ledger_bytes{kind="warm"}');
  if (warmBytes !== warm.length * WARM_BYTES)
    yield `the ledger has ${warmBytes} bytes lent to ${warm.length} sandboxes that wait`;
  const counted = metric("substrate_atelet_running_actors");
  if (counted !== running.length) yield `the atelet counts ${counted} running actors; there are ${running.length}`;
  const placements = metric("substrate_ledger_waiting_placements");
  if (placements !== 0) yield `${placements} placements wait`;
}

/** What the node keeps and uses is that of its actors, and nothing else. */
export function* nodeViolations(world: World): Generator<string> {
  yield* ofFiles(world);
  yield* ofSandboxes(world);
  yield* ofCgroups(world);
  yield* ofLedger(world);
}

/** A loan ends when its snapshot's files are on disk or gone: for when all of them are. */
export function* loanViolations({ metric }: World): Generator<string> {
  const lent = metric('substrate_ledger_bytes{kind="lent"}');
  if (lent !== 0) yield `the ledger has ${lent} bytes lent, though no snapshot waits for the disk`;
}
