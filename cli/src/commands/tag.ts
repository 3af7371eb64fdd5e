import { formatBytes } from "@substrate/lib/resources.ts";
import { Command } from "commander";
import { getActor } from "../actors.ts";
import { type WaitFlags, withConnection, withWait } from "../config.ts";
import { Connection } from "../connection.ts";
import { examples } from "../examples.ts";
import { Progress } from "../progress.ts";
import { checkTag, createTag, untilStored } from "../snapshots.ts";
import { type Terminal } from "../terminal.ts";

export function tagCommand(terminal: Terminal): Command {
  return withWait(withConnection(new Command("tag").summary("keep an actor's present state under a name")))
    .description(
      "Keep an actor's present state as the Snapshot ACTOR-TAG until that is deleted, also when the actor is gone. A\n" +
        "running actor goes on; one with volumes is suspended and resumed at once. The command returns when it is stored.",
    )
    .argument("<actor>", "name of the actor")
    .argument("<tag>", "name of the state: lower-case letters, digits, - and ., not a number alone")
    .addHelpText(
      "after",
      examples(
        ["kubectl ate tag counter before-import", "makes Snapshot counter-before-import"],
        ["kubectl ate resume counter --from before-import", "goes back to it"],
        ["kubectl ate fork counter-before-import copy", "makes another actor of it"],
      ),
    )
    .action(async (name: string, tag: string, flags: WaitFlags) => {
      checkTag(tag);
      const connection = new Connection(flags);
      const address = { namespace: connection.namespace, name };
      await getActor(connection, address);
      const progress = new Progress(terminal.stderr, `tag of ${address.namespace}/${name}`);
      try {
        let snapshot = await createTag(connection, address, tag);
        if (flags.wait) snapshot = await untilStored(connection, snapshot, flags.timeout, progress);
        progress.end();
        const { metadata, status } = snapshot;
        const key = `${address.namespace}/${metadata.name}`;
        if (flags.output === "json") {
          terminal.stdout.write(`${JSON.stringify({ ...snapshot, metadata: withoutFields(metadata) }, null, 2)}\n`);
        } else if (flags.wait) {
          const size = status?.sizeBytes === undefined ? "" : `, ${formatBytes(status.sizeBytes)}`;
          terminal.stdout.write(`snapshot ${key} is stored: tag ${tag} of actor ${name}${size}\n`);
        } else terminal.stdout.write(`snapshot ${key} is asked for: tag ${tag} of actor ${name}\n`);
      } finally {
        progress.end();
      }
    });
}

/** As kubectl shows objects: who wrote which field is for the API server. */
function withoutFields(metadata: object): object {
  return { ...metadata, managedFields: undefined };
}
