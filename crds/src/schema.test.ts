import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { definitions, yamlFiles } from "./all.ts";
import { customResourceDefinition } from "./definition.ts";
import { apiReference } from "./reference.ts";

interface Schema {
  description?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
}

/** Paths of all fields without a description. */
function undescribed(path: string, schema: Schema): string[] {
  return [
    ...(schema.description === undefined ? [path] : []),
    ...Object.entries(schema.properties ?? {}).flatMap(([name, child]) => undescribed(`${path}.${name}`, child)),
    ...(schema.items === undefined ? [] : undescribed(`${path}[]`, schema.items)),
  ];
}

describe.each(definitions.map((definition) => ({ definition, kind: definition.type.kind })))(
  "$kind",
  ({ definition }) => {
    const { versions } = customResourceDefinition(definition).spec as {
      versions: { schema: { openAPIV3Schema: Schema } }[];
    };

    it("explains every field", () => {
      const schema = versions[0]?.schema.openAPIV3Schema.properties ?? {};
      expect(undescribed("spec", schema.spec ?? {})).toEqual([]);
      expect(undescribed("status", schema.status ?? {})).toEqual([]);
    });
  },
);

it.each(yamlFiles())("crds/yaml/$name is as generated (else: npm run gen)", ({ name, text }) => {
  const onDisk = readFileSync(join(import.meta.dirname, "../yaml", name), "utf8");
  expect(onDisk).toBe(text);
  expect(parse(onDisk)).toMatchObject({ kind: "CustomResourceDefinition" });
});

it("docs/reference/api.md is as generated (else: npm run gen)", () => {
  expect(readFileSync(join(import.meta.dirname, "../../docs/reference/api.md"), "utf8")).toBe(apiReference());
});
