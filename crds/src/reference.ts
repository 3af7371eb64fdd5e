import { definitions } from "./all.ts";
import { customResourceDefinition, type Definition } from "./definition.ts";

/** What the page needs of an OpenAPI schema. */
interface Schema {
  type?: string;
  description?: string;
  default?: string | number | boolean | object;
  enum?: string[];
  minimum?: number;
  maximum?: number;
  maxItems?: number;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  additionalProperties?: Schema;
  maxProperties?: number;
  format?: string;
  "x-kubernetes-int-or-string"?: boolean;
  "x-kubernetes-validations"?: { message: string; fieldPath?: string }[];
}

interface Version {
  additionalPrinterColumns: { name: string; priority?: number }[];
  schema: { openAPIV3Schema: Schema };
}

/** Text of docs/reference/api.md: one table per kind with every field of its schema. */
export function apiReference(): string {
  return [
    "<!-- Generated from crds/src by `npm run gen`; do not edit. -->",
    "# Resources",
    "API group `substrate.run/v1alpha1`. `kubectl explain actor.spec --recursive` says the same. `spec` is the user's; " +
      "`status` is written by the operator alone. A duration is text such as `500ms`, `10s`, `5m` or `1h30m`. What the " +
      "API server refuses, it refuses with the sentences in italics.",
    ...definitions.map(kindSection),
  ]
    .join("\n\n")
    .concat("\n");
}

function kindSection(definition: Definition): string {
  const { spec } = customResourceDefinition(definition);
  const [version] = spec.versions as Version[];
  if (version === undefined) throw new Error(`${definition.type.kind} has no version`);
  const schema = version.schema.openAPIV3Schema;
  const { plural, kind } = definition.type;
  const names = [plural, ...definition.shortNames].map(code).join(", ");
  const columns = version.additionalPrinterColumns.map(({ name, priority }) => (priority ? `${name} (wide)` : name));
  const rows = ["spec", "status"].flatMap((name) => fieldRows(name, schema.properties?.[name] ?? {}, name === "spec"));
  const rules = sentences(schema).map((sentence) => `- ${sentence}`);
  return [
    `## ${kind}`,
    `${escape(definition.description)} Names for kubectl: ${names}. Columns of \`kubectl get\`: ${columns.join(", ")}.`,
    ...(rules.length === 0 ? [] : [`Rules over the whole object:\n\n${rules.join("\n")}`]),
    ["| Field | Type | Default | Description |", "| --- | --- | --- | --- |", ...rows].join("\n"),
  ].join("\n\n");
}

function fieldRows(path: string, schema: Schema, required: boolean): string[] {
  const description = [escape(schema.description ?? ""), ...sentences(schema)].filter(Boolean).join("<br>");
  const row = `| ${code(path)} | ${typeText(schema)} | ${defaultText(schema, required)} | ${description} |`;
  const { items } = schema;
  const [childPath, parent] = items?.properties === undefined ? [path, schema] : [`${path}[]`, items];
  const itemMessages = items === undefined ? [] : sentences(items);
  return [
    itemMessages.length === 0 ? row : row.replace(/ \|$/, `<br>Each: ${itemMessages.join("<br>")} |`),
    ...Object.entries(parent.properties ?? {}).flatMap(([name, child]) =>
      fieldRows(`${childPath}.${name}`, child, parent.required?.includes(name) === true),
    ),
  ];
}

/** What the API server says when a rule is broken, with the field below this one that it names. */
function sentences(schema: Schema): string[] {
  return (schema["x-kubernetes-validations"] ?? []).map(
    ({ message, fieldPath }) => `${fieldPath === undefined ? "" : `${code(fieldPath.slice(1))}: `}_${escape(message)}_`,
  );
}

function typeText(schema: Schema): string {
  if (schema.enum !== undefined) return schema.enum.map(code).join(", ");
  if (schema["x-kubernetes-int-or-string"] === true) return "integer or string";
  if (schema.type === "array") {
    const bound = schema.maxItems === undefined ? "" : `, at most ${schema.maxItems}`;
    return `list of ${schema.items?.type ?? "values"}s${bound}`;
  }
  if (schema.additionalProperties !== undefined) {
    const bound = schema.maxProperties === undefined ? "" : `, at most ${schema.maxProperties}`;
    return `map of ${schema.additionalProperties.type ?? "values"}s${bound}`;
  }
  if (schema.type === "integer") return `integer${range(schema)}`;
  return schema.format === "date-time" ? "time" : (schema.type ?? "");
}

function range({ minimum, maximum }: Schema): string {
  if (minimum !== undefined && maximum !== undefined) return ` from ${minimum} to ${maximum}`;
  return minimum === undefined ? "" : ` from ${minimum}`;
}

function defaultText(schema: Schema, required: boolean): string {
  if (schema.default === undefined) return required ? "required" : "";
  return typeof schema.default === "object" ? "of its fields" : code(String(schema.default));
}

function code(text: string): string {
  return `\`${text}\``;
}

/** Characters that mean something in a Markdown table. */
function escape(text: string): string {
  return text.replace(/[|<>*_[\]]/g, (character) => `\\${character}`);
}
