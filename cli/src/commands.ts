import { once } from "node:events";
import type { Actor } from "@substrate/crds/actor.ts";
import { formatDurationMs } from "@substrate/lib/resources.ts";
import { Command, Option } from "commander";
import { stringify } from "yaml";
import { getActor, listActors } from "./actors.ts";
import { type ActorAddress, subresourcePath } from "./address.ts";
import { portNumber, type WaitFlags, wholeNumber, withConnection, withWait } from "./config.ts";
import { Connection, type ConnectionFlags } from "./connection.ts";
import { CommandFailure } from "./failure.ts";
import { finish, start } from "./operation.ts";
import { Progress } from "./progress.ts";
import { startProxy } from "./proxy.ts";
import { missingNamespace, refusal } from "./refusal.ts";
import { shortState } from "./states.ts";
import { actorTable } from "./table.ts";

export interface Terminal {
  stdout: NodeJS.WriteStream;
  stderr: NodeJS.WriteStream;
}

export function suspendCommand(terminal: Terminal): Command {
  return withWait(withConnection(new Command("suspend").summary("put an actor to sleep")))
    .description(
      "Put an actor to sleep: its memory and files become a snapshot, its memory and CPU are given back.\n" +
        "The next request wakes it. Requests that are open may end first; new ones wait and wake it again.",
    )
    .argument("<actor>", "name of the actor")
    .addOption(
      new Option("--mode <mode>", "async: done when the snapshot is on the node's disk; sync: when it is in the store")
        .choices(["async", "sync"])
        .default("async"),
    )
    .option("--force", "cut requests that are still open after the drain timeout", false)
    .addHelpText(
      "after",
      examples(
        ["kubectl ate suspend counter", "sleep; the snapshot is uploaded a little later"],
        ["kubectl ate suspend counter --mode sync", "sleep, and return when the snapshot is safe in the store"],
        ["kubectl ate suspend counter --force", "don't wait for open requests longer than drainTimeout"],
        ["kubectl ate suspend counter --no-wait -o json", "start it and print the operation's id"],
      ),
    )
    .action(async (name: string, flags: WaitFlags & { mode: "async" | "sync"; force: boolean }) => {
      const body = { mode: flags.mode === "sync" ? "Sync" : "Async", force: flags.force };
      await operate(terminal, "suspend", name, flags, { body, sync: flags.mode === "sync" });
    });
}

export function resumeCommand(terminal: Terminal): Command {
  return withWait(withConnection(new Command("resume").summary("wake an actor")))
    .description("Wake an actor without sending it a request.")
    .argument("<actor>", "name of the actor")
    .addHelpText(
      "after",
      examples(
        ["kubectl ate resume counter", "return when its program answers"],
        ["kubectl ate resume counter --timeout 1m", "wait at most a minute (exit code 5 after that)"],
      ),
    )
    .action((name: string, flags: WaitFlags) =>
      operate(terminal, "resume", name, flags, { body: undefined, sync: false }),
    );
}

async function operate(
  terminal: Terminal,
  verb: "suspend" | "resume",
  name: string,
  flags: WaitFlags,
  { body, sync }: { body: object | undefined; sync: boolean },
): Promise<void> {
  const { stdout, stderr } = terminal;
  const connection = new Connection(flags);
  const address = { namespace: connection.namespace, name };
  const progress = new Progress(stderr, `${verb} of ${address.namespace}/${name}`);
  try {
    const started = await start(connection, address, verb, { body, timeoutMs: flags.timeout }, progress);
    if (!flags.wait) {
      progress.end();
      const result = { operationId: started.id, type: verb === "suspend" ? "Suspend" : "Resume", result: "Running" };
      if (flags.output === "json") stdout.write(`${JSON.stringify(result, null, 2)}\n`);
      else stdout.write(`${verb} of actor ${address.namespace}/${name} has begun: operation ${started.id}\n`);
      return;
    }
    const finished = await finish(connection, address, started, { verb, sync, timeoutMs: flags.timeout }, progress);
    progress.end();
    if (flags.output === "json") {
      const { actor, ...facts } = finished;
      const { state, snapshots } = actor.status ?? {};
      const shown = { ...facts, actor: { ...address, state, snapshot: snapshots?.[0] } };
      stdout.write(`${JSON.stringify(shown, null, 2)}\n`);
      return;
    }
    const took = formatDurationMs(finished.durationMs);
    stdout.write(`actor ${address.namespace}/${name} ${outcome(verb, started.before, finished.actor)} (${took})\n`);
  } finally {
    progress.end();
  }
}

/** What a finished operation came to; a suspend of an actor that slept has changed nothing. */
function outcome(verb: "suspend" | "resume", before: Actor, { status }: Actor): string {
  if (verb === "resume") return "resumed";
  const newest = status?.snapshots?.[0];
  const snapshot = newest === undefined ? "" : `: ${newest.name}, ${shortState(newest.storageState)}`;
  if ((status?.generation ?? 0) > (before.status?.generation ?? 0)) return `suspended${snapshot}`;
  return newest === undefined ? "sleeps already: it was never started" : `sleeps already${snapshot}`;
}

export function logCommand(terminal: Terminal): Command {
  return withConnection(new Command("log").summary("print a program's output"))
    .description("Print what an actor's program wrote to stdout and stderr.")
    .argument("<actor>", "name of the actor")
    .option("-f, --follow", "go on with what it writes from now on", false)
    .option("--tail <lines>", "begin with the last lines only", wholeNumber)
    .addHelpText(
      "after",
      examples(
        ["kubectl ate log counter", "all that is kept on its node"],
        ["kubectl ate log counter -f --tail 20", "the last 20 lines, then what comes"],
      ),
    )
    .action(async (name: string, flags: ConnectionFlags & { follow: boolean; tail?: number }) => {
      const connection = new Connection(flags);
      const address = { namespace: connection.namespace, name };
      const query = new URLSearchParams({ follow: String(flags.follow), tail: String(flags.tail ?? -1) });
      await printLog(terminal.stdout, connection, address, query);
    });
}

async function printLog(
  stdout: NodeJS.WriteStream,
  connection: Connection,
  address: ActorAddress,
  query: URLSearchParams,
): Promise<void> {
  const response = await connection.open(`${subresourcePath(address, "log")}?${query.toString()}`);
  if (response.statusCode !== 200) {
    let body = "";
    for await (const chunk of response as AsyncIterable<Buffer>) body += chunk.toString();
    const asked = { verb: "get", resource: "actors/log", group: "subresources.substrate.run" };
    throw await refusal(connection, address, asked, response.statusCode ?? 0, body);
  }
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      if (!stdout.write(chunk)) await once(stdout, "drain");
    }
  } catch (error) {
    throw new CommandFailure(
      "unavailable",
      `the log of actor ${address.namespace}/${address.name} was cut: ${error instanceof Error ? error.message : String(error)}`,
      "what was printed is not the whole: run the command again",
      error,
    );
  }
}

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

export function proxyCommand(terminal: Terminal): Command {
  return withConnection(new Command("proxy").summary("serve an actor on a local port"))
    .description(
      "Serve an actor on a local HTTP port. Requests go through the API server with your credentials, so that they\n" +
        "need neither the router's address nor its host names. An Authorization header is not passed on.",
    )
    .argument("<actor>", "name of the actor")
    .option("--port <port>", "local port; 0 takes a free one", portNumber, 0)
    .option("--actor-port <port>", "name or number of the actor's port (default: its first)")
    .addHelpText(
      "after",
      examples(
        ["kubectl ate proxy counter --port 8001", "then: curl http://127.0.0.1:8001/"],
        ["kubectl ate proxy counter --actor-port metrics", "another port of its container"],
      ),
    )
    .action(async (name: string, flags: ConnectionFlags & { port: number; actorPort?: string }) => {
      const connection = new Connection(flags);
      const address = { namespace: connection.namespace, name };
      await getActor(connection, address);
      const proxy = await startProxy(connection, address, flags.port, flags.actorPort);
      terminal.stdout.write(
        `actor ${address.namespace}/${name} is at http://127.0.0.1:${proxy.port}/ until you press Ctrl-C\n`,
      );
      await Promise.race([once(process, "SIGINT"), once(process, "SIGTERM")]);
      proxy.close();
    });
}

function examples(...lines: readonly [command: string, meaning: string][]): string {
  return `\nExamples:\n${lines.map(([command, meaning]) => `  # ${meaning}\n  ${command}\n`).join("\n")}`;
}
