import { once } from "node:events";
import { Command } from "commander";
import { getActor } from "../actors.ts";
import { portNumber, withConnection } from "../config.ts";
import { Connection, type ConnectionFlags } from "../connection.ts";
import { examples } from "../examples.ts";
import { startProxy } from "../proxy.ts";
import { type Terminal } from "../terminal.ts";

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
