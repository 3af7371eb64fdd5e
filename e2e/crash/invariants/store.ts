import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { namesIn, type World } from "./world.ts";

const headSchema = z.object({ epoch: z.number(), generation: z.number(), manifest: z.string().nullable() });
const manifestSchema = z.object({
  generation: z.number(),
  files: z.array(z.object({ name: z.string(), sizeBytes: z.number() })),
  pages: z
    .object({
      index: z.object({ sizeBytes: z.number() }),
      packs: z.array(z.object({ key: z.string(), at: z.string().optional() })),
    })
    .optional(),
});
/** Beside the generations of a prefix. */
const others = new Set(["head.json", "packs", "users", "tombstone"]);

/** One actor's (or Snapshot's) part of the store against what the API says of it. */
function* ofPrefix(dir: string, uid: string, world: World): Generator<string> {
  const actor = world.actors.find(({ metadata }) => metadata.uid === uid);
  const snapshot = world.snapshots.find(({ metadata }) => metadata.uid === uid);
  if (actor === undefined && snapshot === undefined && livingUsers(dir, world).length > 0) {
    const more = namesIn(dir).filter((name) => !["packs", "users", "tombstone"].includes(name));
    if (more.length > 0)
      yield `${dir} is of a Snapshot that is gone, and has more than what others use: ${more.join(", ")}`;
    return;
  }
  if (actor === undefined && snapshot === undefined) {
    yield `${dir} is of no object: ${namesIn(dir).join(", ")}`;
    return;
  }
  const headPath = join(dir, "head.json");
  if (!existsSync(headPath)) {
    yield `${dir} has no head.json`;
    return;
  }
  const head = headSchema.parse(JSON.parse(readFileSync(headPath, "utf8")));
  const epoch = actor?.status?.assignment?.epoch;
  if (epoch !== undefined && head.epoch > epoch) yield `${headPath} has epoch ${head.epoch}, the status ${epoch}`;
  const folders = namesIn(dir).filter((name) => !others.has(name));
  const named = new Set<string>();
  for (const folder of folders) yield* ofGeneration(join(dir, folder), named);
  for (const pack of namesIn(join(dir, "packs")))
    if (!named.has(join(dir, "packs", pack))) yield `${dir}/packs/${pack} is named by no manifest`;
  if (existsSync(join(dir, "tombstone"))) yield `${dir} has a tombstone, and its object is there`;
  const kept = (actor?.status?.snapshots ?? [])
    .filter(({ storageState }) => storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED")
    .map(({ generation }) => String(generation));
  if (actor === undefined) return;
  const stored = folders.map((name) => name.split("-")[0] ?? "");
  if (stored.sort().join() !== kept.sort().join())
    yield `${dir} has generations ${stored.join(", ")}; the status shows ${kept.join(", ")} as COMPLETED`;
  const newest = Math.max(0, ...kept.map(Number));
  if (head.generation !== newest) yield `${headPath} names generation ${head.generation}, COMPLETED is ${newest}`;
  if (head.manifest !== null && !existsSync(join(dir, head.manifest)))
    yield `${headPath} names ${head.manifest}, which is not there`;
}

/** Actors that share pages with a Snapshot, whose packs stay for them. */
export function livingUsers(dir: string, { actors }: World): string[] {
  return namesIn(join(dir, "users")).filter((uid) => actors.some(({ metadata }) => metadata.uid === uid));
}

/** A generation in the store is its manifest and what that names. @param named gets the packs. */
function* ofGeneration(dir: string, named: Set<string>): Generator<string> {
  const path = join(dir, "manifest.json");
  if (!existsSync(path)) {
    yield `${dir} has no manifest: ${namesIn(dir).join(", ")}`;
    return;
  }
  const manifest = manifestSchema.parse(JSON.parse(readFileSync(path, "utf8")));
  const { pages } = manifest;
  const files = [...manifest.files, ...(pages ? [{ name: "pages.index", sizeBytes: pages.index.sizeBytes }] : [])];
  const cluster = join(dir, "../../..");
  for (const { key, at } of pages?.packs ?? []) {
    const pack = join(cluster, at ?? key);
    named.add(pack);
    if (!existsSync(pack)) yield `${path} names ${pack}, which is not there`;
  }
  for (const { name, sizeBytes } of files)
    if (!existsSync(join(dir, name)) || statSync(join(dir, name)).size !== sizeBytes)
      yield `${dir}/${name} has not the ${sizeBytes} bytes of its manifest`;
  const names = new Set(["manifest.json", ...files.map(({ name }) => name)]);
  for (const name of readdirSync(dir)) if (!names.has(name)) yield `${dir}/${name} is named by no manifest`;
}

/** Nothing in the store that no head, manifest or object names, and everything that they name. */
export function* storeViolations(world: World): Generator<string> {
  const { storeDir } = world.cluster;
  for (const clusterUid of namesIn(storeDir).filter((name) => !name.startsWith("."))) {
    const folder = join(storeDir, clusterUid);
    if (!statSync(folder).isDirectory()) continue;
    for (const namespaceUid of readdirSync(folder)) {
      if (!statSync(join(folder, namespaceUid)).isDirectory()) continue;
      for (const uid of readdirSync(join(folder, namespaceUid)))
        yield* ofPrefix(join(folder, namespaceUid, uid), uid, world);
    }
  }
  for (const name of namesIn(join(storeDir, ".tmp"))) yield `${storeDir}/.tmp/${name} is left over`;
}
