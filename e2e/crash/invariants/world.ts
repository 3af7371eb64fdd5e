import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Actor, actors, type Snapshot, snapshots } from "@substrate/crds/index.ts";
import { type LocalCluster } from "@substrate/local/cluster.ts";
import { z } from "zod";

/** One volume's layers; those of an origin have no number of their own. */
export const stackSchema = z.object({
  name: z.string(),
  layers: z.array(z.union([z.object({ own: z.number() }), z.object({ origin: z.string() })])),
});

const recordSchema = z.object({
  volumes: z.object({ stacks: z.array(stackSchema) }),
  sandbox: z.object({ sandboxId: z.string(), slotIndex: z.number() }).optional(),
  program: z.object({ memoryBytes: z.number(), history: z.number().default(1) }),
  generations: z.array(z.object({ generation: z.number(), storage: z.object({ state: z.string() }) })),
});

/** An actor as the node's files show it. */
export interface NodeActor {
  uid: string;
  /** Of its sandbox; undefined if it has none. */
  sandboxId: string | undefined;
  dir: string;
  record: z.infer<typeof recordSchema> | undefined;
  running: boolean;
}

/** All that the invariants look at, read at one moment. */
export interface World {
  cluster: LocalCluster;
  atelet: number;
  actors: Actor[];
  snapshots: Snapshot[];
  nodeActors: NodeActor[];
  /** Ids of the sandboxes that wait for an actor. */
  warm: string[];
  /** A sample of the atelet's metrics; 0 if it has no such series. */
  metric: (series: string) => number;
}

/** Names in the folder; none if it is not there. */
export function namesIn(folder: string): string[] {
  return existsSync(folder) ? readdirSync(folder) : [];
}

function readNodeActor(actorsDir: string, uid: string): NodeActor {
  const dir = join(actorsDir, uid);
  const path = join(dir, "record.json");
  const record = existsSync(path) ? recordSchema.parse(JSON.parse(readFileSync(path, "utf8"))) : undefined;
  return { uid, sandboxId: record?.sandbox?.sandboxId, dir, record, running: record?.sandbox !== undefined };
}

/** @throws while a part is not there. */
export async function lookAround(cluster: LocalCluster): Promise<World> {
  const atelet = cluster.pid("atelet");
  if (atelet === undefined) throw new Error("the atelet does not run");
  const [foundActors, foundSnapshots, answer] = await Promise.all([
    cluster.client.list(actors),
    cluster.client.list(snapshots),
    fetch(`${cluster.metricsUrls.atelet}/metrics`, { signal: AbortSignal.timeout(5_000) }),
  ]);
  const lines = (await answer.text()).split("\n");
  const actorsDir = join(cluster.nodeDir, "actors");
  const nodeActors = namesIn(actorsDir).map((uid) => readNodeActor(actorsDir, uid));
  const warm = namesIn(join(cluster.nodeDir, "warm"));
  return {
    cluster,
    atelet,
    actors: foundActors.items,
    snapshots: foundSnapshots.items,
    nodeActors,
    warm: warm.filter((id) => nodeActors.every(({ sandboxId }) => sandboxId !== id)),
    metric: (series) => Number(lines.find((line) => line.startsWith(`${series} `))?.slice(series.length + 1) ?? 0),
  };
}
