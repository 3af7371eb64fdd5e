import { existsSync, globSync, readFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { program } from "@substrate/cli/program.ts";
import { expect, it } from "vitest";
import { blocksOf, pages, pageText } from "./pages.ts";
import { plain, referencePage, repository, tableRows } from "./tables.ts";

/** Text that is code: blocks of commands and what stands between backticks. */
function codeOf(page: string): string[] {
  const commands = blocksOf(page).filter(({ language }) => language === "sh");
  const prose = pageText(page).replace(/^```.*?^```$/gms, "");
  return [
    ...commands.flatMap(({ body }) => body.split(/\n|&&|[;#>]|\s[|&](?=\s|$)|\$\(/)),
    ...[...prose.matchAll(/`([^`\n]+)`/g)].map(([, code = ""]) => code),
  ];
}

const root = program({ stdin: process.stdin, stdout: process.stdout, stderr: process.stderr });
const commandNames = new Map(
  root.commands.map((command) => [
    command.name(),
    new Set(command.options.flatMap(({ short, long }) => [short, long])),
  ]),
);
const always = new Set(root.options.flatMap(({ short, long }) => [short, long]).concat("--help"));

/** What is wrong with one `kubectl ate …` of a page; its own program's arguments come after `--`. */
function wrongUse(code: string): string[] {
  const words = (/kubectl ate(?: |$)(.*)/.exec(code)?.[1] ?? "").split(" -- ")[0]?.split(/[ =]/) ?? [];
  const names = words.find((word) => /^[a-z|]+$/.test(word))?.split("|") ?? [];
  const flags = words.filter((word) => /^--?[a-z]/.test(word));
  return names.flatMap((name) => {
    const options = commandNames.get(name);
    if (options === undefined) return [`${name} in: ${code}`];
    return flags.filter((flag) => !options.has(flag) && !always.has(flag)).map((flag) => `${flag} in: ${code}`);
  });
}

it.each(pages)("every command and option of kubectl ate in %s exists", (page) => {
  expect(
    codeOf(page)
      .filter((code) => code.includes("kubectl ate"))
      .flatMap(wrongUse),
  ).toEqual([]);
});

it.each(pages)("every npm script in %s exists", (page) => {
  const { scripts } = JSON.parse(readFileSync(join(repository, "package.json"), "utf8")) as { scripts: object };
  const named = codeOf(page).flatMap((code) =>
    [...code.matchAll(/\bnpm run (?:--silent )?([a-z][a-z0-9:]*)/g)].map(([, name = ""]) => name),
  );
  expect(named.filter((name) => !(name in scripts))).toEqual([]);
});

/** Fields of Kubernetes' own Lease and of Nodes, which some pages speak of. */
const othersFields = ["spec.leaseTransitions", "spec.holderIdentity", "spec.unschedulable"];

it.each(pages)("every field of a resource in %s exists", (page) => {
  const fields = new Set([
    ...tableRows(referencePage("api.md")).map(([field]) => plain(field).replaceAll("[]", "")),
    ...othersFields,
  ]);
  const named = codeOf(page).flatMap(
    (code) => /^((?:spec|status)(?:\.[A-Za-z]+(?:\[\])?)+)(?::|$)/.exec(code)?.[1] ?? [],
  );
  expect(named.filter((field) => !fields.has(field.replaceAll("[]", "")))).toEqual([]);
});

it.each(pages)("every error code in %s is one of the catalogue", (page) => {
  const catalogue = new Set(tableRows(referencePage("errors.md")).map(([code]) => plain(code)));
  const families = new Set([...catalogue].map((code) => code.split("_")[0]));
  const named = codeOf(page).filter((code) => /^[A-Z]+(_[A-Z]+)+$/.test(code) && families.has(code.split("_")[0]));
  // states and owners of resources, and variables of the shell, look alike
  const others = /^(SNAPSHOT_|ACTOR_STATE_|SUBSTRATE_|NODE_COMPILE_CACHE)/;
  expect(named.filter((code) => !catalogue.has(code) && !others.test(code))).toEqual([]);
});

it("docs/README.md leads to every page, and docs/adr/README.md to every decision", () => {
  for (const [index, all] of [
    ["docs/README.md", pages.filter((page) => page.startsWith("docs/") && !page.startsWith("docs/adr/0"))],
    ["docs/adr/README.md", globSync("docs/adr/0*.md", { cwd: repository })],
  ] as const) {
    expect(existsSync(join(repository, index)), index).toBe(true);
    const links = [...pageText(index).matchAll(/\]\(([^)#\s]+)/g)].map(([, target = ""]) => target);
    const missing = all
      .filter((page) => page !== index)
      .map((page) => relative(dirname(index), page))
      .filter((page) => !links.includes(page));
    expect(missing, basename(index)).toEqual([]);
  }
});
