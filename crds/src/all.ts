import { stringify } from "yaml";
import { actorDefinition } from "./actor.ts";
import { customResourceDefinition, type Definition } from "./definition.ts";
import { snapshotDefinition } from "./snapshot.ts";
import { templateDefinition } from "./template.ts";

export const definitions: readonly Definition[] = [templateDefinition, actorDefinition, snapshotDefinition];

/** Every file of crds/yaml with its text. */
export function yamlFiles(): { name: string; text: string }[] {
  return definitions.map((definition) => ({
    name: `${definition.type.plural}.yaml`,
    text:
      "# Generated from crds/src by `npm run gen`; do not edit.\n" +
      // YAML 1.1, or kubectl would read y, on and no as booleans
      stringify(customResourceDefinition(definition), {
        compat: "yaml-1.1",
        aliasDuplicateObjects: false,
        lineWidth: 0,
      }),
  }));
}
