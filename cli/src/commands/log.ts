import { once } from "node:events";
import { Command } from "commander";
import { subresourcePath, type ActorAddress } from "../address.ts";
import { wholeNumber, withConnection } from "../config.ts";
import { Connection, type ConnectionFlags } from "../connection.ts";
import { examples } from "../examples.ts";
import { CommandFailure } from "../failure.ts";
import { refusal } from "../refusal.ts";
import { type Terminal } from "../terminal.ts";

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
