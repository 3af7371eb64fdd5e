import { Command } from "commander";
import { getActor } from "../actors.ts";
import { type WaitFlags, withConnection, withWait } from "../config.ts";
import { Connection } from "../connection.ts";
import { examples } from "../examples.ts";
import { CommandFailure } from "../failure.ts";
import { operate } from "../operate.ts";
import { findSource } from "../snapshots.ts";
import { type Terminal } from "../terminal.ts";

type ResumeFlags = WaitFlags & { from?: string; boot: boolean };

export function resumeCommand(terminal: Terminal): Command {
  return withWait(withConnection(new Command("resume").summary("wake an actor")))
    .description(
      "Wake an actor without sending it a request. --from and --boot choose what it starts from, and end a crash loop;\n" +
        "newer states than the chosen one are given up.",
    )
    .argument("<actor>", "name of the actor")
    .option(
      "--from <generation or tag>",
      "start from this generation of its own, or from a tag; also by their Snapshots' names",
    )
    .option("--boot", "start the program cold, with the newest volumes", false)
    .addHelpText(
      "after",
      examples(
        ["kubectl ate resume counter", "return when its program answers"],
        ["kubectl ate resume counter --from 3", "go back to generation 3 (kubectl ate describe lists them)"],
        ["kubectl ate resume counter --from before-import", "go back to a tag"],
        ["kubectl ate resume counter --boot", "start the program anew, its volumes kept"],
        ["kubectl ate resume counter --timeout 1m", "wait at most a minute (exit code 5 after that)"],
      ),
    )
    .action(async (name: string, { from, boot, ...flags }: ResumeFlags) => {
      if (boot && from !== undefined) {
        throw new CommandFailure(
          "usage",
          "--boot and --from exclude each other",
          "a cold start comes from no snapshot",
        );
      }
      await operate(terminal, "resume", name, flags, { body: await choice(name, from, boot, flags), sync: false });
    });
}

async function choice(
  name: string,
  from: string | undefined,
  boot: boolean,
  flags: WaitFlags,
): Promise<object | undefined> {
  if (boot) return { boot };
  if (from === undefined) return undefined;
  if (/^[0-9]+$/.test(from)) return { from: generationNumber(from) };
  const connection = new Connection(flags);
  const address = { namespace: connection.namespace, name };
  // a wrong name of the actor is said before a wrong tag
  await getActor(connection, address);
  return { from: await findSource(connection, address, from) };
}

function generationNumber(text: string): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number > 0) return number;
  throw new CommandFailure("usage", `there can be no generation ${text}`, "generations are counted from 1");
}
