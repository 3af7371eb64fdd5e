import { program } from "@substrate/cli/program.ts";
import { expect, it } from "vitest";
import { plain, referencePage, tableRows } from "./tables.ts";

const page = referencePage("cli.md");
const root = program({ stdin: process.stdin, stdout: process.stdout, stderr: process.stderr });
const flagOf = (flags: string): string => flags.replace(/ [<[].*$/, "");

it("docs/reference/cli.md has every command of kubectl ate, and no other", () => {
  const documented = tableRows(page, "Commands").map(([command]) => plain(command));
  expect(documented).toEqual(root.commands.map((command) => command.name()));
});

/** "all", "all but NAME" or names. */
function namesIn(commands: string): string[] {
  if (!commands.startsWith("all")) return commands.split(", ");
  const without = commands.replace(/^all( but )?/, "");
  return root.commands.map((command) => command.name()).filter((name) => name !== without);
}

it("it has every option with its commands, and no other", () => {
  const inCode = new Map<string, string[]>();
  for (const command of root.commands) {
    for (const { flags } of command.options) {
      inCode.set(flagOf(flags), [...(inCode.get(flagOf(flags)) ?? []), command.name()]);
    }
  }
  inCode.set("--version", ["no command"]);
  const documented = tableRows(page, "Options").map(([option, commands = ""]) => {
    const names = namesIn(commands);
    return [plain(option), names.toSorted()];
  });
  const expected = [...inCode].map(([option, names]) => [option, names.toSorted()]);
  expect(documented.toSorted()).toEqual(expected.toSorted());
});

it("it has the exit codes of --help", () => {
  let help = "";
  root.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
  const inHelp = [...help.matchAll(/^ {2}(\d) {2}(.*)$/gm)].map(([, code, meaning]) => [code, meaning]);
  expect(inHelp).toHaveLength(7);
  expect(tableRows(page, "Exit codes")).toEqual(inHelp);
});
