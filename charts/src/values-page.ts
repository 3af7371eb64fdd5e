import { readFileSync } from "node:fs";
import { join } from "node:path";
import { isMap, isScalar, type Node, parseDocument, type YAMLMap } from "yaml";
import { z } from "zod";

const chart = join(import.meta.dirname, "../substrate");

interface Value {
  path: string;
  fallback: string;
  description: string;
}

/** The lines of a comment that stand right above its key, as one. */
function sentence(comment: string | null | undefined): string {
  const last = (comment ?? "").split(/\n\s*\n/).at(-1) ?? "";
  return last.replaceAll(/\s+/g, " ").trim();
}

function isSection(node: unknown): node is YAMLMap {
  return isMap(node) && node.items.length > 0 && node.flow !== true;
}

/**
 * The comment before the first key of a map belongs, for the parser, to the map itself.
 * @param inherited what a section's own comment says
 */
function valuesOf(map: YAMLMap, prefix: string): Value[] {
  return map.items.flatMap((pair, index): Value[] => {
    if (!isScalar(pair.key)) throw new Error(`${prefix}: a key of values.yaml is not a scalar`);
    const path = `${prefix}${String(pair.key.value)}`;
    const comment = sentence(pair.key.commentBefore ?? (index === 0 ? map.commentBefore : undefined));
    const node = pair.value as Node | null;
    if (isSection(node)) {
      const own = comment === "" ? [] : [{ path, fallback: "", description: comment }];
      return [...own, ...valuesOf(node, `${path}.`)];
    }
    return [{ path, fallback: JSON.stringify(node?.toJSON() ?? null), description: comment }];
  });
}

const schemaNode = z.looseObject({
  $ref: z.string().optional(),
  type: z.union([z.string(), z.array(z.string())]).optional(),
  enum: z.array(z.string()).optional(),
  minimum: z.number().optional(),
  maximum: z.number().optional(),
  pattern: z.string().optional(),
  description: z.string().optional(),
  properties: z.record(z.string(), z.unknown()).optional(),
});
type SchemaNode = z.infer<typeof schemaNode>;

class Schema {
  readonly #root: SchemaNode;
  readonly #defs: Record<string, unknown>;

  constructor(text: string) {
    const parsed = schemaNode.extend({ $defs: z.record(z.string(), z.unknown()) }).parse(JSON.parse(text));
    this.#root = parsed;
    this.#defs = parsed.$defs;
  }

  #resolve(node: unknown): SchemaNode {
    const parsed = schemaNode.parse(node);
    if (parsed.$ref === undefined) return parsed;
    return this.#resolve(this.#defs[parsed.$ref.replace("#/$defs/", "")]);
  }

  /** @throws when the schema doesn't have the value */
  at(path: string): SchemaNode {
    return path.split(".").reduce((node, key) => {
      const next = node.properties?.[key];
      if (next === undefined) throw new Error(`values.schema.json has no ${path}`);
      return this.#resolve(next);
    }, this.#root);
  }

  /** Paths of values that are there beside objects. */
  leaves(node: SchemaNode = this.#root, prefix = ""): string[] {
    return Object.entries(node.properties ?? {}).flatMap(([key, child]) => {
      const resolved = this.#resolve(child);
      const path = `${prefix}${key}`;
      return resolved.properties === undefined ? [path] : this.leaves(resolved, `${path}.`);
    });
  }
}

function expected(node: SchemaNode): string {
  if (node.enum !== undefined) return node.enum.map((item) => (item === "" ? "empty" : item)).join(", ");
  const type = [node.type ?? []].flat().join(" or ");
  const range = node.maximum === undefined ? "" : ` ${node.minimum ?? 0}–${node.maximum}`;
  return `${type}${range}${node.description === undefined ? "" : `: ${node.description}`}`;
}

/** Values that are no part of the defaults: they may be given, and stand for what is said elsewhere. */
const withoutDefault = new Set([
  "atelet.updateStrategy.rollingUpdate.maxSurge",
  "certificates.issuerRef.name",
  "certificates.issuerRef.kind",
  "certificates.issuerRef.group",
  "global",
]);

/** README.md of the chart. @throws when values.yaml and values.schema.json don't have the same values */
export function valuesPage(): string {
  const document = parseDocument(readFileSync(join(chart, "values.yaml"), "utf8"));
  if (!isMap(document.contents)) throw new Error("values.yaml is not a map");
  const schema = new Schema(readFileSync(join(chart, "values.schema.json"), "utf8"));
  const values = valuesOf(document.contents, "");
  const missing = schema
    .leaves()
    .filter((leaf) => !withoutDefault.has(leaf))
    .filter(
      (leaf) => !values.some(({ path }) => path === leaf || leaf.startsWith(`${path}.`) || path.startsWith(`${leaf}.`)),
    );
  if (missing.length > 0) throw new Error(`values.yaml has no ${missing.join(", ")}`);
  const rows = values.map(({ path, fallback, description }) => {
    const cells = [`\`${path}\``, fallback === "" ? "" : `\`${fallback}\``, expected(schema.at(path)), description];
    return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  });
  return `# The chart \`substrate\`

<!-- Generated from values.yaml and values.schema.json by \`npm run gen\`; do not edit. -->

[Installing](../../docs/operations/install.md) · [upgrades](../../docs/operations/upgrade.md) ·
[uninstalling](../../docs/operations/uninstall.md) · [rights of the parts](../../docs/reference/rbac.md)

\`\`\`sh
kubectl create namespace substrate-system
kubectl -n substrate-system create secret generic store --from-literal=accessKeyId=ID --from-literal=secretAccessKey=SECRET
helm install substrate charts/substrate -n substrate-system \\
  --set 'stores.default.url=s3://BUCKET?region=REGION' --set stores.default.credentialsSecret=store
\`\`\`

A value that is not in this table, or not as the table says, is refused with its path. \`stores\` is all that has to be
given.

| Value | Default | What is taken | What for |
|---|---|---|---|
${rows.join("\n")}
`;
}
