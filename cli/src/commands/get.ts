import type { Actor } from "@substrate/crds/actor.ts";
import { Command, Option } from "commander";
import { stringify } from "yaml";
import { getActor, listActors } from "../actors.ts";
import { withConnection } from "../config.ts";
import { Connection, type ConnectionFlags } from "../connection.ts";
import { examples } from "../examples.ts";
import { CommandFailure } from "../failure.ts";
import { missingNamespace } from "../refusal.ts";
import { actorTable } from "../table.ts";
import { type Terminal } from "../terminal.ts";

type GetFlags = ConnectionFlags & { output?: "wide" | "json" | "yaml"; allNamespaces: boolean };

export function getCommand(terminal: Terminal): Command {
  return withConnection(new Command("get").summary("list actors with their newest snapshots"))
    .description("List actors with their states and newest snapshots, or show one.")
    .argument("[actor]", "name of one actor")
    .option("-A, --all-namespaces", "actors of every namespace", false)
    .addOption(new Option("-o, --output <format>", "more columns, or whole objects").choices(["wide", "json", "yaml"]))
    .addHelpText(
      "after",
      examples(
        ["kubectl ate get", "actors of the namespace"],
        [
          "kubectl ate get counter -o wide",
          "with every snapshot's storage state, the last operation and why it is not Ready",
        ],
        ["kubectl ate get -A -o json", "all actors of the cluster, for programs"],
      ),
    )
    .action(async (name: string | undefined, flags: GetFlags) => {
      if (name !== undefined && flags.allNamespaces) {
        throw new CommandFailure(
          "usage",
          "a name and --all-namespaces exclude each other",
          "name its namespace with -n",
        );
      }
      const connection = new Connection(flags);
      const namespace = flags.allNamespaces ? undefined : connection.namespace;
      if (name !== undefined) {
        const actor = await getActor(connection, { namespace: connection.namespace, name });
        terminal.stdout.write(shown([actor], withoutManagedFields(actor), flags));
        return;
      }
      const actors = await listActors(connection, namespace);
      if (actors.length === 0 && namespace !== undefined) {
        const missing = await missingNamespace(connection, namespace);
        if (missing !== undefined) throw missing;
      }
      if (actors.length === 0 && (flags.output === undefined || flags.output === "wide")) {
        terminal.stderr.write(`no actors in ${namespace === undefined ? "any namespace" : `namespace ${namespace}`}\n`);
        return;
      }
      terminal.stdout.write(
        shown(actors, { apiVersion: "v1", kind: "List", items: actors.map(withoutManagedFields) }, flags),
      );
    });
}

/** As kubectl shows objects: who wrote which field is for the API server. */
function withoutManagedFields(actor: Actor): object {
  return { ...actor, metadata: { ...actor.metadata, managedFields: undefined } };
}

function shown(actors: Parameters<typeof actorTable>[0], whole: object, { output, allNamespaces }: GetFlags): string {
  if (output === "json") return `${JSON.stringify(whole, null, 2)}\n`;
  if (output === "yaml") return stringify(whole, { compat: "yaml-1.1", aliasDuplicateObjects: false, lineWidth: 0 });
  return actorTable(actors, { wide: output === "wide", namespaces: allNamespaces, nowMs: Date.now() });
}
