import { Command } from "commander";
import { completionCommand } from "./commands/completion.ts";
import { cpCommand } from "./commands/cp.ts";
import { describeCommand } from "./commands/describe.ts";
import { doctorCommand } from "./commands/doctor.ts";
import { execCommand } from "./commands/exec.ts";
import { forkCommand } from "./commands/fork.ts";
import { getCommand } from "./commands/get.ts";
import { logCommand } from "./commands/log.ts";
import { proxyCommand } from "./commands/proxy.ts";
import { resumeCommand } from "./commands/resume.ts";
import { suspendCommand } from "./commands/suspend.ts";
import { tagCommand } from "./commands/tag.ts";
import { topCommand } from "./commands/top.ts";
import { withConnection } from "./config.ts";
import { exitCodes } from "./failure.ts";
import { type Terminal } from "./terminal.ts";
import { version } from "./version.ts";

/** All commands, with their help. */
export function program(terminal: Terminal): Command {
  const makers = [
    getCommand,
    describeCommand,
    suspendCommand,
    resumeCommand,
    logCommand,
    execCommand,
    cpCommand,
    tagCommand,
    forkCommand,
    topCommand,
    proxyCommand,
    doctorCommand,
    completionCommand,
  ];
  const commands = makers.map((make) => make(terminal).exitOverride());
  const names = commands.map((command) => command.name()).join(", ");
  const root = withConnection(new Command("kubectl ate"))
    .description("Substrate's actors: put to sleep, wake, look at, talk to.")
    .version(version, "--version", "print the version")
    .addHelpText("after", help())
    .showHelpAfterError(`(commands are ${names}; run it with --help to see what is allowed)`)
    .enablePositionalOptions()
    .exitOverride();
  for (const command of commands) {
    root.addCommand(command.showHelpAfterError("(run it with --help to see what is allowed)"));
  }
  // as with kubectl, these may also stand before the command
  root.hook("preAction", (_, command) => {
    for (const [name, value] of Object.entries(root.opts())) {
      if (command.getOptionValueSource(name) === undefined) command.setOptionValueWithSource(name, value, "cli");
    }
  });
  return root;
}

function help(): string {
  const codes = Object.values(exitCodes).map(({ code, meaning }) => `  ${code}  ${meaning}\n`);
  return `
An actor sleeps as a snapshot and comes back, with its memory, when a request for it arrives.
These commands do now what otherwise happens by itself; everything else is kubectl's:
  kubectl apply -f FILE        kubectl get actors,snapshots,templates        kubectl delete actor NAME

Exit codes:
  0  done
${codes.join("")}`;
}
