import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { hasField, newestFields, type Schema } from "./installation.ts";

interface Definition {
  spec: { versions: { schema: { openAPIV3Schema: Schema } }[] };
}

test("the fields by which doctor tells this version are in the schemas of this version", () => {
  for (const [plural, fields] of Object.entries(newestFields)) {
    const file = new URL(`../../../crds/yaml/${plural}.yaml`, import.meta.url);
    const { spec } = parse(readFileSync(file, "utf8")) as Definition;
    for (const field of fields) {
      expect([plural, field, hasField(spec.versions[0]?.schema.openAPIV3Schema, field)]).toEqual([plural, field, true]);
    }
  }
});
