import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { plain, referencePage, repository, tableRows } from "./tables.ts";

const page = referencePage("phases.md");

it.each([
  { part: "atelet", sections: ["Suspend", "Resume", "Store"] },
  { part: "operator", sections: ["In the operator"] },
])("docs/reference/phases.md has every phase that the $part measures, and no other", ({ part, sections }) => {
  const files = globSync(`${part}/src/**/*.ts`, { cwd: repository }).filter((name) => !name.endsWith(".test.ts"));
  const code = files.map((name) => readFileSync(join(repository, name), "utf8")).join("\n");
  const measured = [...code.matchAll(/\bphases\.(?:run|add)\(\s*"(\w+)"/g)].map(([, name]) => name);
  const documented = sections.flatMap((heading) => tableRows(page, heading)).map(([name]) => plain(name));
  expect([...new Set(documented)].toSorted()).toEqual([...new Set(measured)].toSorted());
});
