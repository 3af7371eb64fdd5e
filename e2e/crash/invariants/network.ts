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
const mapping = z.tuple([z.number(), z.object({ concat: z.tuple([z.string(), z.number()]) })]);

function inPod(atelet: number, ...command: string[]): string {
  return execFileSync("nsenter", ["-t", String(atelet), "-n", ...command], { encoding: "utf8", timeout: 10_000 });
}

/** Node address of a slot, as atelet/src/network/interior.ts has it. */
function addressOf(link: string): string {
  const index = Number(link.slice(1));
  return `100.64.${index >> 8}.${index & 255}`;
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
export function* networkViolations({ cluster, atelet, nodeActors }: World): Generator<string> {
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
  const mounted = readFileSync(`/proc/${atelet}/mountinfo`, "utf8")
    .split("\n")
    .flatMap((line) => {
      const point = line.split(" ")[4] ?? "";
      return point.startsWith(`${dir}/`) ? [`a${point.slice(dir.length + 1)}`] : [];
    });
  yield* differ("mounted network namespaces", mounted, links);
  const sources = elements("src").map((element) => z.tuple([z.string(), z.string()]).parse(element)[0]);
  yield* differ("nftables map src", sources, links);
  const blocked = elements("blk").map((element) => z.string().parse(element));
  yield* differ(
    "nftables set blk",
    blocked,
    links.filter((link) => !running.includes(link)),
  );
  const targets = elements("dn").map((element) => mapping.parse(element)[1].concat[0]);
  yield* differ("nftables map dn", targets, running.map(addressOf));
  if (targets.length !== running.length) yield `nftables map dn has ${targets.length} elements`;
  for (const link of running) if (!links.includes(link)) yield `running actor without its link ${link}`;
  if (links.length !== running.length + readySlots)
    yield `${links.length} network slots: ${running.length} actors run, ${readySlots} are kept ready`;
}

/** Mounts of the pod below the node folder beside the namespaces'. */
export function* mountViolations({ cluster, atelet, nodeActors }: World): Generator<string> {
  const running = nodeActors.filter((actor) => actor.running);
  for (const line of readFileSync(`/proc/${atelet}/mountinfo`, "utf8").split("\n")) {
    const point = line.split(" ")[4] ?? "";
    const isOurs = point.startsWith(`${cluster.nodeDir}/`);
    if (!isOurs || point.startsWith(`${cluster.nodeDir}/netns/`) || point.endsWith("/null-netns")) continue;
    if (!running.some(({ dir }) => point.startsWith(`${dir}/volumes/`))) yield `${point} is still mounted`;
  }
}
