import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { conditionReasons, conditionTypes, eventReasons } from "@substrate/operator/reasons.ts";
import { expect, it } from "vitest";
import { plain, referencePage, repository, tableRows } from "./tables.ts";

const page = referencePage("reasons.md");

it.each([
  { heading: "Template", reasons: conditionReasons.Template },
  { heading: "Actor", reasons: conditionReasons.Actor },
  { heading: "Snapshot", reasons: conditionReasons.Snapshot },
  { heading: "Events", reasons: eventReasons },
])("docs/reference/reasons.md has every reason of $heading, and no other", ({ heading, reasons }) => {
  const documented = tableRows(page, heading).map(([reason]) => plain(reason));
  expect([...new Set(documented)].sort()).toEqual([...reasons].sort());
});

it("docs/reference/reasons.md names every condition type", () => {
  const documented = ["Template", "Actor", "Snapshot"].flatMap((heading) =>
    tableRows(page, heading).flatMap(([, types]) => types?.split(", ") ?? []),
  );
  expect(new Set(documented)).toEqual(new Set(conditionTypes));
});

// the compiler sees to the other direction: nothing else can be written as a reason
it("every reason is given by the operator's code", () => {
  const files = globSync("operator/src/*.ts", { cwd: repository }).filter(
    (name) => !name.endsWith(".test.ts") && !name.endsWith("/reasons.ts"),
  );
  const code = files.map((name) => readFileSync(join(repository, name), "utf8")).join("\n");
  const all = [...Object.values(conditionReasons).flat(), ...eventReasons, ...conditionTypes];
  expect(all.filter((reason) => !code.includes(`"${reason}"`))).toEqual([]);
});
