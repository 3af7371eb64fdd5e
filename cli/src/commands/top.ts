import { setTimeout as sleep } from "node:timers/promises";
import { formatBytes } from "@substrate/lib/resources.ts";
import { Command, Option } from "commander";
import pLimit from "p-limit";
import { getActor, listActors } from "../actors.ts";
import { type ActorAddress } from "../address.ts";
import { columns } from "../columns.ts";
import { withConnection } from "../config.ts";
import { Connection, type ConnectionFlags } from "../connection.ts";
import { examples } from "../examples.ts";
import { CommandFailure } from "../failure.ts";
import { ask, listNodes, type NodeUsage, type Usage } from "../inspection.ts";
import { missingNamespace } from "../refusal.ts";
import { shortState } from "../states.ts";
import { type Terminal } from "../terminal.ts";

/** CPU is told from two looks that are this far apart. */
const betweenLooksMs = 1_000;
const atOnce = 8;

type TopFlags = ConnectionFlags & { allNamespaces: boolean; output?: "json" };

export function topCommand(terminal: Terminal): Command {
  return withConnection(new Command("top").summary("what actors and nodes use"))
    .description(
      "What the actors of a namespace use now: memory, CPU, snapshots on their nodes, volumes; or the nodes' room.",
    )
    .argument("[what]", "actors (the default), the name of one, or nodes")
    .option("-A, --all-namespaces", "actors of every namespace", false)
    .addOption(new Option("-o, --output <format>", "print the figures for programs").choices(["json"]))
    .addHelpText(
      "after",
      examples(
        ["kubectl ate top", "actors of the namespace"],
        ["kubectl ate top counter", "one of them"],
        ["kubectl ate top nodes", "what the nodes have promised, lent and kept back"],
      ),
    )
    .action(async (what: string | undefined, flags: TopFlags) => {
      const connection = new Connection(flags);
      if (what === "nodes") {
        const { items } = await listNodes(connection);
        terminal.stdout.write(flags.output === "json" ? `${JSON.stringify(items, null, 2)}\n` : nodeTable(items));
      } else await topActors(terminal, connection, flags, what === "actors" ? undefined : what);
    });
}

export interface ActorUsage {
  namespace: string;
  name: string;
  state: string;
  usage?: Usage;
  /** Cores in use between the two looks. */
  cores?: number;
}

/** Of the one that is named, or of all. */
async function topActors(
  terminal: Terminal,
  connection: Connection,
  flags: TopFlags,
  name: string | undefined,
): Promise<void> {
  const { namespace: own } = connection;
  if (name !== undefined && flags.allNamespaces) {
    throw new CommandFailure("usage", `"${name}" is in one namespace`, "write -n NAMESPACE instead of -A");
  }
  const actors =
    name === undefined
      ? await listActors(connection, flags.allNamespaces ? undefined : own)
      : [await getActor(connection, { namespace: own, name })];
  const limit = pLimit(atOnce);
  const look = (address: ActorAddress) => limit(() => ask(connection, address, "usage"));
  const rows = await Promise.all(
    actors.map(async ({ metadata, status }): Promise<ActorUsage> => {
      const { name, namespace = "" } = metadata;
      const row = { namespace, name, state: shortState(status?.state) };
      if (status?.assignment?.nodeName === undefined) return row;
      const first = await look({ namespace, name });
      if (!("value" in first)) return row;
      if (status.state !== "ACTOR_STATE_RUNNING") return { ...row, usage: first.value };
      await sleep(betweenLooksMs);
      const second = await look({ namespace, name });
      if (!("value" in second)) return { ...row, usage: first.value };
      return { ...row, usage: second.value, cores: coresBetween(first.value, second.value) };
    }),
  );
  if (flags.output === "json") terminal.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
  else if (rows.length === 0) {
    const missing = flags.allNamespaces ? undefined : await missingNamespace(connection, own);
    if (missing !== undefined) throw missing;
    terminal.stderr.write(flags.allNamespaces ? "no actors\n" : `no actors in namespace ${own}\n`);
  } else terminal.stdout.write(usageTable(rows, flags.allNamespaces));
}

/** 0 when the sandbox began anew in between. */
export function coresBetween(first: Usage, second: Usage): number {
  const ns = (Date.parse(second.sampledAt) - Date.parse(first.sampledAt)) * 1e6;
  const used = second.cpuNanoseconds - first.cpuNanoseconds;
  return ns <= 0 || used < 0 ? 0 : used / ns;
}

const size = (bytes: number | undefined): string => (bytes === undefined ? "-" : formatBytes(bytes).replace(" ", ""));

export function usageTable(rows: readonly ActorUsage[], namespaces: boolean): string {
  const header = [...(namespaces ? ["NAMESPACE"] : []), "NAME", "STATE", "MEMORY", "CPU", "SNAPSHOTS", "VOLUMES"];
  return columns([
    header,
    ...rows.map(({ namespace, name, state, usage, cores }) => [
      ...(namespaces ? [namespace] : []),
      name,
      state,
      usage === undefined || usage.memoryBytes === 0
        ? "-"
        : `${size(usage.memoryBytes)}/${size(usage.memoryLimitBytes)}`,
      usage === undefined || cores === undefined ? "-" : `${Math.round(cores * 1000)}m/${usage.cpuLimitMillis}m`,
      size(usage?.localBytes),
      usage === undefined || usage.volumes.length === 0
        ? "-"
        : usage.volumes
            .map((volume) => {
              const limit = volume.limitBytes === undefined ? "" : `/${size(volume.limitBytes)}`;
              return `${volume.name}:${size(volume.usedBytes)}${limit}`;
            })
            .join(","),
    ]),
  ]);
}

function reachability({ lost, reachable, trouble, unschedulable }: NodeUsage): string {
  const marks = [
    ...(lost === true ? ["lost"] : []),
    ...(unschedulable ? ["cordoned"] : []),
    ...(trouble === undefined ? [] : [trouble.replace(/^(is|has) /, "")]),
  ];
  return (reachable ? "yes" : "no") + (marks.length === 0 ? "" : ` (${marks.join(", ")})`);
}

export function nodeTable(nodes: readonly NodeUsage[]): string {
  return columns([
    [
      "NODE",
      "REACHABLE",
      "ACTORS",
      "RUNNING",
      "LIMIT",
      "BOOKED",
      "LENT",
      "WARM",
      "RESERVE",
      "TRANSFERS",
      "WAITING",
      "RUNTIME",
    ],
    ...nodes.map((node) => [
      node.metadata.name,
      reachability(node),
      node.reachable ? String(node.actors) : "-",
      node.reachable ? String(node.running) : "-",
      size(node.limitBytes),
      size(node.bookedBytes),
      size(node.lentBytes),
      size(node.warmBytes),
      size(node.reserveBytes),
      size(node.transferBytes),
      node.waiting === undefined ? "-" : String(node.waiting),
      node.runtime || "-",
    ]),
  ]);
}
