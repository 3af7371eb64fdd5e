import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { errorCatalogue } from "@substrate/lib/errors.ts";
import { reasonOf } from "@substrate/operator/conditions.ts";
import ts from "typescript";
import { expect, it } from "vitest";
import { plain, referencePage, repository, tableRows } from "./tables.ts";

const page = referencePage("reasons.md");

/** Reasons and condition types that stand as literals in the operator's code. */
function literals(): { reasons: Set<string>; conditionTypes: Set<string> } {
  const found = { reasons: new Set<string>(), conditionTypes: new Set<string>() };
  // api/ answers in Kubernetes' own words (metav1.Status)
  const files = globSync("operator/src/*.ts", { cwd: repository }).filter((name) => !name.endsWith(".test.ts"));
  expect(files.length).toBeGreaterThan(10);
  for (const name of files) {
    const text = readFileSync(join(repository, name), "utf8");
    visit(ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true), found);
  }
  return found;
}

function visit(file: ts.SourceFile, found: ReturnType<typeof literals>): void {
  const reasonParameters = new Map<string, number>();
  const walk = (node: ts.Node, see: (node: ts.Node) => void): void => {
    see(node);
    node.forEachChild((child) => {
      walk(child, see);
    });
  };
  // functions of this file that take a reason: `const warn = (reason, message) => …`
  walk(file, (node) => {
    if (!ts.isVariableDeclaration(node) || !ts.isIdentifier(node.name)) return;
    if (node.initializer === undefined || !ts.isArrowFunction(node.initializer)) return;
    const index = node.initializer.parameters.findIndex(({ name }) => name.getText(file) === "reason");
    if (index >= 0) reasonParameters.set(node.name.text, index);
  });
  walk(file, (node) => {
    if (ts.isPropertyAssignment(node) && node.name.getText(file) === "reason") {
      for (const reason of strings(node.initializer)) found.reasons.add(reason);
    }
    if (ts.isCallExpression(node) && ts.isIdentifier(node.expression)) {
      const index = reasonParameters.get(node.expression.text);
      const argument = index === undefined ? undefined : node.arguments[index];
      for (const reason of argument === undefined ? [] : strings(argument)) found.reasons.add(reason);
    }
    if (ts.isObjectLiteralExpression(node)) {
      const properties = new Map(node.properties.map((property) => [property.name?.getText(file), property]));
      const type = properties.get("type");
      if (!properties.has("status") || type === undefined || !ts.isPropertyAssignment(type)) return;
      for (const text of strings(type.initializer)) found.conditionTypes.add(text);
    }
  });
}

/** The texts that an expression may be: a literal, or either side of a condition. */
function strings(node: ts.Expression): string[] {
  if (ts.isStringLiteral(node)) return node.text === "" ? [] : [node.text];
  if (ts.isConditionalExpression(node)) return [...strings(node.whenTrue), ...strings(node.whenFalse)];
  if (ts.isParenthesizedExpression(node) || ts.isAsExpression(node)) return strings(node.expression);
  return [];
}

const headings = ["Template", "Actor", "Snapshot", "Events"];

it("docs/reference/reasons.md has every reason of the operator's code, and no other", () => {
  const documented = new Set(headings.flatMap((heading) => tableRows(page, heading).map(([reason]) => plain(reason))));
  const { reasons } = literals();
  const fromCodes = new Set(Object.keys(errorCatalogue).map(reasonOf));
  expect([...reasons].filter((reason) => !documented.has(reason))).toEqual([]);
  expect([...documented].filter((reason) => !reasons.has(reason) && !fromCodes.has(reason))).toEqual([]);
});

it("docs/reference/reasons.md names every condition type", () => {
  const documented = ["Template", "Actor", "Snapshot"].flatMap((heading) =>
    tableRows(page, heading).flatMap(([, types]) => types?.split(", ") ?? []),
  );
  expect(new Set(documented)).toEqual(literals().conditionTypes);
});
