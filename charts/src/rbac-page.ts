import { people, parts, type Rule } from "./rbac.ts";

function cell(text: string): string {
  return text.replaceAll("|", "\\|");
}

function group(name: string): string {
  return name === "" ? "core" : `\`${name}\``;
}

function codes(items: readonly string[]): string {
  return items.map((item) => `\`${item}\``).join(", ");
}

function objects({ resources, names, managedCertificates }: Omit<Rule, "scope">): string {
  const only = names === undefined ? "" : `, only ${codes(names.map((name) => name.replace("{fullname}", "<name>")))}`;
  return `${codes(resources)}${only}${managedCertificates === undefined ? "" : " (managed certificates)"}`;
}

function row(rule: Omit<Rule, "scope">, where: readonly string[]): string {
  const why = rule.wide === undefined ? rule.why : `${rule.why}. Not narrower: ${rule.wide}`;
  const cells = [...where, group(rule.group), objects(rule), rule.verbs.join(", "), why];
  return `| ${cells.map(cell).join(" | ")} |`;
}

/** docs/reference/rbac.md. */
export function rbacPage(): string {
  const sections = parts.map(({ part, rules, borrowed }) => {
    const rows = rules.map((rule) => row(rule, [rule.scope === "cluster" ? "all namespaces" : "its own"]));
    const bound = borrowed.map(
      ({ role, namespace, why }) => `\nBound besides to Role \`${role}\` of namespace \`${namespace}\`: ${why}.\n`,
    );
    const head = "| Where | API group | Resources | Verbs | For what |\n|---|---|---|---|---|";
    return `## The ${part}\n\n${head}\n${rows.join("\n")}\n${bound.join("")}`;
  });
  const roles = people.map(({ name, aggregateTo, rules }) => {
    const also =
      aggregateTo.length === 0
        ? "Part of no other role."
        : `Its rules are also part of the cluster's own ${codes(aggregateTo)}.`;
    const head = "| API group | Resources | Verbs | For what |\n|---|---|---|---|";
    return `### \`<name>-${name}\`\n\n${also}\n\n${head}\n${rules.map((rule) => row(rule, [])).join("\n")}\n`;
  });
  return `# Rights

What each part may do at the API server, and what for. Generated from \`charts/src/rbac.ts\` by \`npm run gen\`, like the
roles in the chart and in \`local/manifests\`; a test asks an API server what each part may do and compares.
\`<name>\` is what the installation's objects begin with: \`substrate\` for a release of that name.

${sections.join("\n")}
## People

ClusterRoles to bind in a namespace, or cluster-wide. [Security](../security.md) says what each right means.

${roles.join("\n")}`;
}
