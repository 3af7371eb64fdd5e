import { once } from "node:events";
import { Command } from "commander";
import { withConnection } from "../config.ts";
import { Connection, type ConnectionFlags } from "../connection.ts";
import { examples } from "../examples.ts";
import { CommandFailure } from "../failure.ts";
import { ProgramExit } from "../program-exit.ts";
import { runRemote } from "../remote.ts";
import { type Terminal } from "../terminal.ts";

type ExecFlags = ConnectionFlags & { stdin: boolean; tty: boolean };

export function execCommand(terminal: Terminal): Command {
  return withConnection(new Command("exec").summary("run a program inside an actor"))
    .description(
      "Run a program of an actor's image inside it; a sleeping actor is woken first. The command ends with the program's\n" +
        "exit code. While it runs the actor is not suspended but by --force, and it ends when the connection does.",
    )
    .argument("<actor>", "name of the actor")
    .argument("<command...>", "the program and its arguments, behind --")
    .option("-i, --stdin", "pass the standard input on", false)
    .option("-t, --tty", "give it a terminal", false)
    .addHelpText(
      "after",
      examples(
        ["kubectl ate exec counter -- ls -l /data", "look into its files"],
        ["kubectl ate exec counter -it -- sh", "a shell, where its image has one"],
        ["kubectl ate exec counter -i -- sh < script.sh", "run a script of this machine"],
      ),
    )
    .action(async (name: string, command: string[], flags: ExecFlags) => {
      const connection = new Connection(flags);
      const address = { namespace: connection.namespace, name };
      const { stdin, stdout, stderr } = terminal;
      if (flags.tty && !stdin.isTTY) {
        throw new CommandFailure("usage", "--tty needs a terminal, and the input is none", "leave -t out");
      }
      const to = (stream: NodeJS.WriteStream) => (bytes: Buffer) => {
        if (!stream.write(bytes)) return once(stream, "drain").then(() => undefined);
        return undefined;
      };
      if (flags.tty) stdin.setRawMode(true);
      try {
        const code = await runRemote(connection, address, {
          command,
          tty: flags.tty,
          stdin: flags.stdin ? stdin : undefined,
          stdout: to(stdout),
          stderr: to(stderr),
          begun: (resize) => {
            if (!flags.tty) return;
            resize(stdout);
            stdout.on("resize", () => {
              resize(stdout);
            });
          },
        });
        if (code !== 0) throw new ProgramExit(code);
      } finally {
        if (flags.tty) stdin.setRawMode(false);
      }
    });
}
