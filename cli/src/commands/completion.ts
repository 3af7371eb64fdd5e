import { Argument, Command } from "commander";
import { type Shell, scripts, shells } from "../completion.ts";
import { examples } from "../examples.ts";
import { type Terminal } from "../terminal.ts";

export function completionCommand(terminal: Terminal): Command {
  return new Command("completion")
    .summary("print a shell's completion")
    .description(
      "Print what a shell needs to complete commands, options and the names of actors and tags. For `kubectl ate`, kubectl\n" +
        "itself asks the program kubectl_complete-ate, which `completion kubectl` prints.",
    )
    .addArgument(new Argument("<shell>", "bash, zsh or fish; kubectl for the plugin's own").choices([...shells]))
    .addHelpText(
      "after",
      examples(
        ["kubectl ate completion bash > /etc/bash_completion.d/kubectl-ate", "for kubectl-ate in bash"],
        [
          "kubectl ate completion kubectl > kubectl_complete-ate && chmod +x kubectl_complete-ate",
          "for kubectl ate in every shell: put it beside kubectl-ate on the PATH",
        ],
      ),
    )
    .action((shell: Shell) => {
      terminal.stdout.write(scripts[shell]);
    });
}
