import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { namesIn, type World } from "./world.ts";

/** READY_NETWORK_SLOTS of the atelet. */
const readySlots = 4;

const listing = z.object({
  nftables: z.array(z.object({ map: z.unknown().optional(), set: z.unknown().optional() })),
});
const named = z.object({ name: z.string(), elem: z.array(z.unknown()).default([]) });
const marked = z.object({ elem: z.object({ val: z.string(), comment: z.string() }) });
const mapping = z.tuple([z.number(), z.object({ concat: z.tuple([z.string(), z.number()]) })]);

function inPod(atelet: number, ...command: string[]): string {
  return execFileSync("nsenter", ["-t", String(atelet), "-n", ...command], { encoding: "utf8", timeout: 10_000 });
}

function differ(what: string, found: readonly string[], expected: readonly string[]): string[] {
  const extra = found.filter((name) => !expected.includes(name));
  const missing = expected.filter((name) => !found.includes(name));
  return [
    ...(extra.length > 0 ? [`${what}: ${extra.join(", ")} too many`] : []),
    ...(missing.length > 0 ? [`${what}: ${missing.join(", ")} missing`] : []),
  ];
}

/** Links, namespaces, nftables elements: those of the ready slots and of running actors. */
export function* networkViolations({ cluster, atelet, nodeActors, warm, metric }: World): Generator<string> {
  const dir = join(cluster.nodeDir, "netns");
  const links = [...inPod(atelet, "ip", "-o", "link").matchAll(/^\d+: (a\d+)[@:]/gm)].map((match) => match[1] ?? "");
  const sets = listing
    .parse(JSON.parse(inPod(atelet, "nft", "-j", "list", "table", "ip", "ate")))
    .nftables.flatMap(({ map, set }) => (map === undefined && set === undefined ? [] : [named.parse(map ?? set)]));
  const elements = (name: string): unknown[] => sets.find((set) => set.name === name)?.elem ?? [];
  const running = nodeActors.flatMap(({ record }) =>
    record?.sandbox === undefined ? [] : [`a${record.sandbox.slotIndex}`],
  );

  yield* differ(
    "network namespaces in the node folder",
    namesIn(dir).map((name) => `a${name}`),
    links,
  );
  const mounted = mountPoints(atelet).flatMap((point) =>
    point.startsWith(`${dir}/`) ? [`a${point.slice(dir.length + 1)}`] : [],
  );
  yield* differ("mounted network namespaces", mounted, links);
  // A link's address may be the one with which its actor fell asleep.
  const sources = new Map(elements("src").map((element) => z.tuple([z.string(), z.string()]).parse(element)));
  yield* differ("nftables map src", [...sources.keys()], links);
  const blocked = elements("blk").map((element) => z.string().parse(element));
  yield* differ(
    "nftables set blk",
    blocked,
    links.filter((link) => !running.includes(link)),
  );
  yield* parkedViolations(elements("asleep"), sources, nodeActors);
  for (const link of elements("waking")) yield `nftables set waking: ${String(link)} is not opened`;
  const parked = elements("asleep").length;
  if (metric("substrate_atelet_parked_addresses") !== parked)
    yield `${parked} addresses are asleep, the metric differs`;
  const targets = elements("dn").map((element) => mapping.parse(element)[1].concat[0]);
  yield* differ(
    "nftables map dn",
    targets,
    running.map((link) => sources.get(link) ?? `(none of ${link})`),
  );
  if (targets.length !== running.length) yield `nftables map dn has ${targets.length} elements`;
  for (const link of running) if (!links.includes(link)) yield `running actor without its link ${link}`;
  if (links.length !== running.length + warm.length + readySlots)
    yield `${links.length} network slots: ${running.length} actors run, ${warm.length} sandboxes wait for one, ${readySlots} are kept ready`;
}

/** Addresses that are asleep: each of an actor that sleeps, for its newest generation, and of no link. */
function* parkedViolations(
  asleep: readonly unknown[],
  sources: ReadonlyMap<string, string>,
  nodeActors: World["nodeActors"],
): Generator<string> {
  const ofLinks = [...sources.values()];
  for (const element of asleep) {
    if (typeof element === "string") {
      yield `nftables set asleep: ${element} is nobody's`;
      continue;
    }
    const { val, comment } = marked.parse(element).elem;
    const [uid = "", generation = ""] = comment.split(" ");
    const actor = nodeActors.find((candidate) => candidate.uid === uid);
    if (ofLinks.includes(val)) yield `nftables set asleep: ${val} is a link's`;
    if (actor?.record === undefined) yield `nftables set asleep: ${val} is of ${uid}, which is not here`;
    else if (actor.running) yield `nftables set asleep: ${val} is of ${uid}, which runs`;
    else {
      const newest = Math.max(...actor.record.generations.map((saved) => saved.generation));
      if (newest !== Number(generation))
        yield `nftables set asleep: ${val} is for generation ${generation} of ${newest}`;
    }
  }
}

/** Mount points as a process sees them; one that is mounted over is there twice. */
function mountPoints(pid: number): string[] {
  const lines = readFileSync(`/proc/${pid}/mountinfo`, "utf8").split("\n").filter(Boolean);
  return lines.map((line) => line.split(" ")[4] ?? "");
}

/** Mounts of the pod beside the namespaces': the shared folder, and those of each volume of a running actor. */
export function* mountViolations({ cluster, atelet, nodeActors }: World): Generator<string> {
  const points = mountPoints(atelet);
  const own = points.filter((point) => point.startsWith(`${cluster.nodeDir}/`));
  const warmDir = join(cluster.nodeDir, "warm");
  const inWarm = namesIn(warmDir);
  const volumes = nodeActors.flatMap(({ dir, record, sandboxId }) =>
    (sandboxId === undefined ? [] : (record?.volumes.stacks ?? [])).flatMap(({ name }, index) => [
      join(dir, "volumes", name, "mnt"),
      // a sandbox that had waited sees it by way of its own folder
      ...(inWarm.includes(sandboxId ?? "") ? [join(warmDir, sandboxId ?? "", "volumes", String(index))] : []),
    ]),
  );
  const mounted = own.filter(
    (point) => !point.startsWith(`${cluster.nodeDir}/netns/`) && !point.endsWith("/null-netns"),
  );
  yield* differ("mounts", mounted, [...volumes, warmDir]);
  for (const point of new Set(mounted))
    if (mounted.filter((other) => other === point).length > 1) yield `${point} is mounted more than once`;
  // those of others that were there when the pod began are copied into it
  for (const point of points)
    if (!own.includes(point) && point.startsWith(`${cluster.stateDir}/`)) yield `${point} is mounted in the pod`;
}
