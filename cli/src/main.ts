import { Command, CommanderError } from "commander";
import { getCommand, logCommand, proxyCommand, resumeCommand, suspendCommand, type Terminal } from "./commands.ts";
import { CommandFailure, exitCodes } from "./failure.ts";

const terminal: Terminal = { stdout: process.stdout, stderr: process.stderr };

const help = `
An actor sleeps as a snapshot and comes back, with its memory, when a request for it arrives.
These commands do now what otherwise happens by itself; everything else is kubectl's:
  kubectl get actors,snapshots        kubectl describe actor NAME        kubectl delete actor NAME

Exit codes:
  0  done
  1  the operation failed, or was refused
  2  wrong usage, or no usable kubeconfig
  3  no such actor
  4  not allowed (the message names the missing right)
  5  not ended within --timeout; it goes on
  6  the API server or Substrate can't be reached, or Substrate isn't installed
`;

function program(): Command {
  const root = new Command("kubectl ate")
    .description("Substrate's actors: put to sleep, wake, look at, talk to.")
    .addHelpText("after", help)
    .showHelpAfterError("(run it with --help to see what is allowed)")
    .exitOverride();
  for (const make of [getCommand, suspendCommand, resumeCommand, logCommand, proxyCommand]) {
    root.addCommand(make(terminal).exitOverride().showHelpAfterError("(run it with --help to see what is allowed)"));
  }
  return root;
}

async function main(): Promise<number> {
  try {
    await program().parseAsync();
    return 0;
  } catch (error) {
    // commander has printed its own already
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCodes.usage;
    if (!(error instanceof CommandFailure)) {
      terminal.stderr.write(`error: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
      return exitCodes.operationFailed;
    }
    terminal.stderr.write(`error: ${error.message}\n${error.hint === undefined ? "" : `${error.hint}\n`}`);
    return exitCodes[error.ending];
  }
}

process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  // "kubectl ate log x | head": the reader has enough
  process.exit(error.code === "EPIPE" ? 0 : exitCodes.operationFailed);
});
void main().then((code) => {
  // open keep-alive connections must not hold the process
  process.exit(code);
});
