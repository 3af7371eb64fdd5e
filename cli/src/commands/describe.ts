import type { Snapshot } from "@substrate/crds/snapshot.ts";
import { Command } from "commander";
import { getActor } from "../actors.ts";
import { type ActorAddress } from "../address.ts";
import { withConnection } from "../config.ts";
import { Connection, type ConnectionFlags } from "../connection.ts";
import { type ActorEvent, description } from "../description.ts";
import { examples } from "../examples.ts";
import { ask } from "../inspection.ts";
import { objectsPath } from "../objects.ts";
import { messageOf } from "../refusal.ts";
import { type Terminal } from "../terminal.ts";

export function describeCommand(terminal: Terminal): Command {
  return withConnection(new Command("describe").summary("show all about one actor"))
    .description(
      "Show what an actor is and does: its state and why, its generations and tags, what it uses, a crash with the last\n" +
        "output, and what was done to it with the time of each phase.",
    )
    .argument("<actor>", "name of the actor")
    .addHelpText("after", examples(["kubectl ate describe counter", "begin here when something is wrong with it"]))
    .action(async (name: string, flags: ConnectionFlags) => {
      const connection = new Connection(flags);
      const address = { namespace: connection.namespace, name };
      const actor = await getActor(connection, address);
      const onNode = actor.status?.assignment?.nodeName !== undefined;
      const [tags, events, operations, usage] = await Promise.all([
        tagsOf(connection, address),
        eventsOf(connection, address, actor.metadata.uid ?? ""),
        onNode ? ask(connection, address, "operations") : { why: "it is on no node" },
        onNode ? ask(connection, address, "usage") : { why: "it is on no node" },
      ]);
      const text = description({
        actor,
        tags,
        events,
        operations: "value" in operations ? operations.value.items : operations.why,
        usage: "value" in usage ? usage.value : usage.why,
        nowMs: Date.now(),
      });
      terminal.stdout.write(text);
    });
}

async function tagsOf(connection: Connection, { namespace, name }: ActorAddress): Promise<Snapshot[] | string> {
  const query = new URLSearchParams({ fieldSelector: `spec.actorRef.name=${name}` });
  const found = await items<Snapshot>(connection, `${objectsPath("snapshots", namespace)}?${query.toString()}`);
  return typeof found === "string" ? found : found.filter(({ spec }) => spec.tag !== undefined);
}

function eventsOf(connection: Connection, { namespace }: ActorAddress, uid: string): Promise<ActorEvent[] | string> {
  const query = new URLSearchParams({ fieldSelector: `involvedObject.uid=${uid}` });
  return items<ActorEvent>(
    connection,
    `/api/v1/namespaces/${encodeURIComponent(namespace)}/events?${query.toString()}`,
  );
}

/** Why they can't be read, where that is so: the rest is worth showing. */
async function items<T>(connection: Connection, path: string): Promise<T[] | string> {
  const { status, body } = await connection.ask(path);
  if (status === 200) return (JSON.parse(body) as { items: T[] }).items;
  return messageOf(status, body);
}
