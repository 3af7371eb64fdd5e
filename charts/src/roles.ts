import { people, type PeopleRole, type PartRights, parts, type Rule } from "./rbac.ts";

/** How the objects of an installation are named: literal text, or expressions of a chart's template. */
export interface Naming {
  fullname: string;
  namespace: string;
  serviceAccount: (part: string) => string;
  /** Lines of `metadata` below `name`. */
  metadata: (part: string) => readonly string[];
  /** Lines around a piece that only managed certificates need. */
  managed: { begin: string; end: string } | undefined;
}

function list(items: readonly string[]): string {
  return `[${items.map((item) => (item === "" ? '""' : /[{}]/.test(item) ? `'${item}'` : item)).join(", ")}]`;
}

function ruleLines(rule: Omit<Rule, "scope">, naming: Naming): string[] {
  const lines = [
    `  # ${rule.why}`,
    ...(rule.wide === undefined ? [] : [`  # ${rule.wide}`]),
    `  - apiGroups: ${list([rule.group])}`,
    `    resources: ${list(rule.resources)}`,
    ...(rule.names === undefined
      ? []
      : [`    resourceNames: ${list(rule.names.map((name) => name.replace("{fullname}", naming.fullname)))}`]),
    `    verbs: ${list(rule.verbs)}`,
  ];
  if (rule.managedCertificates === undefined || naming.managed === undefined) return lines;
  return [naming.managed.begin, ...lines, naming.managed.end];
}

interface Named {
  name: string;
  namespace: string | undefined;
  part: string;
}

function metadata({ name, namespace, part }: Named, naming: Naming): string[] {
  return [
    "metadata:",
    `  name: ${name}`,
    ...(namespace === undefined ? [] : [`  namespace: ${namespace}`]),
    ...naming.metadata(part).map((line) => `  ${line}`),
  ];
}

const API_VERSION = "apiVersion: rbac.authorization.k8s.io/v1";

interface Bound {
  kind: "Role" | "ClusterRole";
  /** Of the role. */
  role: string;
  binding: string;
  /** Of the binding; undefined for one that holds everywhere. */
  namespace: string | undefined;
  part: string;
}

function bindingText({ kind, role, binding, namespace, part }: Bound, naming: Naming): string {
  return [
    API_VERSION,
    `kind: ${namespace === undefined ? "ClusterRoleBinding" : "RoleBinding"}`,
    ...metadata({ name: binding, namespace, part }, naming),
    "roleRef:",
    "  apiGroup: rbac.authorization.k8s.io",
    `  kind: ${kind}`,
    `  name: ${role}`,
    "subjects:",
    "  - kind: ServiceAccount",
    `    name: ${naming.serviceAccount(part)}`,
    `    namespace: ${naming.namespace}`,
  ].join("\n");
}

function roleTexts({ part, rules }: PartRights, naming: Naming): string[] {
  const name = `${naming.fullname}-${part}`;
  return (["cluster", "namespace"] as const).flatMap((scope) => {
    const own = rules.filter((rule) => rule.scope === scope);
    if (own.length === 0) return [];
    const kind = scope === "cluster" ? "ClusterRole" : "Role";
    const namespace = scope === "cluster" ? undefined : naming.namespace;
    const role = [
      API_VERSION,
      `kind: ${kind}`,
      ...metadata({ name, namespace, part }, naming),
      "rules:",
      ...own.flatMap((rule) => ruleLines(rule, naming)),
    ].join("\n");
    return [role, bindingText({ kind, role: name, binding: name, namespace, part }, naming)];
  });
}

function borrowedTexts({ part, borrowed }: PartRights, naming: Naming): string[] {
  return borrowed.map(({ role, namespace, why }) => {
    const bound = { kind: "Role", role, binding: `${naming.fullname}-${part}`, namespace, part } as const;
    return `# ${why}\n${bindingText(bound, naming)}`;
  });
}

/** Roles and bindings of operator, atelet and router as YAML documents. */
export function partRoles(naming: Naming): string {
  const documents = parts.flatMap((rights) => [...roleTexts(rights, naming), ...borrowedTexts(rights, naming)]);
  return documents.join("\n---\n") + "\n";
}

function aggregation({ aggregateTo }: PeopleRole): string[] {
  return aggregateTo.map((role) => `rbac.authorization.k8s.io/aggregate-to-${role}: "true"`);
}

/**
 * ClusterRoles for people as YAML documents.
 * @param labels more lines of `labels`
 */
export function peopleRoles(naming: Naming, labels: readonly string[] = []): string {
  return people
    .map((role) => {
      const all = [...labels, ...aggregation(role)];
      return [
        API_VERSION,
        "kind: ClusterRole",
        "metadata:",
        `  name: ${naming.fullname}-${role.name}`,
        ...(all.length === 0 ? [] : ["  labels:", ...all.map((line) => `    ${line}`)]),
        "rules:",
        ...role.rules.flatMap((rule) => ruleLines(rule, naming)),
        "",
      ].join("\n");
    })
    .join("---\n");
}
