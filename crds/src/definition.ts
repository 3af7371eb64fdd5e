import { type KubeObject, type ResourceType } from "@substrate/lib/kube/object.ts";
import { type CustomResourceDefinition } from "@substrate/lib/kube/types.ts";
import { z } from "zod";
import { NOT_OBSERVED, type Rule } from "./fields.ts";

export interface Column {
  name: string;
  type: "string" | "integer" | "date";
  jsonPath: string;
  /** 1: only with `-o wide`. */
  priority?: number;
}

/** All that a CustomResourceDefinition is made of. */
export interface Definition {
  type: ResourceType<KubeObject>;
  description: string;
  shortNames: string[];
  categories: string[];
  spec: z.ZodType;
  status: z.ZodType;
  /** Rules over the whole object. */
  rules: Rule[];
  columns: Column[];
  /** Fields for `kubectl get --field-selector`. */
  selectable: string[];
}

/** What zod writes for an integer without bounds: JavaScript's own limits, which mean nothing here. */
const zodBounds = [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER];

/** A zod schema as the structural schema that the API server accepts. */
function openApi(schema: z.ZodType): Record<string, unknown> {
  return z.toJSONSchema(schema, {
    target: "openapi-3.0",
    io: "input",
    override: ({ zodSchema, jsonSchema }) => {
      // the API server checks a default against the rules before it fills in what is inside
      if (zodSchema instanceof z.ZodPrefault) jsonSchema.default = zodSchema.parse(undefined);
      // the API server knows int-or-string by this mark and refuses anyOf with types in it
      if (jsonSchema["x-kubernetes-int-or-string"] === true) delete jsonSchema.anyOf;
      if (zodBounds.includes(Number(jsonSchema.maximum))) delete jsonSchema.maximum;
      if (zodBounds.includes(Number(jsonSchema.minimum))) delete jsonSchema.minimum;
    },
  });
}

/** The CustomResourceDefinition of a kind. */
export function customResourceDefinition(definition: Definition): CustomResourceDefinition {
  const { type } = definition;
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${type.plural}.${type.group}` },
    spec: {
      group: type.group,
      names: {
        kind: type.kind,
        listKind: `${type.kind}List`,
        plural: type.plural,
        singular: type.kind.toLowerCase(),
        shortNames: definition.shortNames,
        categories: definition.categories,
      },
      scope: type.namespaced ? "Namespaced" : "Cluster",
      versions: [
        {
          name: type.version,
          served: true,
          storage: true,
          subresources: { status: {} },
          additionalPrinterColumns: definition.columns,
          ...(definition.selectable.length === 0
            ? {}
            : { selectableFields: definition.selectable.map((jsonPath) => ({ jsonPath })) }),
          schema: {
            openAPIV3Schema: {
              type: "object",
              description: definition.description,
              required: ["spec"],
              properties: {
                apiVersion: { type: "string", description: `${type.group}/${type.version}` },
                kind: { type: "string", description: type.kind },
                // named so that rules can point at it; the API server knows the rest
                metadata: { type: "object", properties: { name: { type: "string" } } },
                spec: openApi(definition.spec),
                // without it tools that follow kstatus take a new object for ready until the operator has seen it
                status: { ...openApi(definition.status), default: { observedGeneration: NOT_OBSERVED } },
              },
              ...(definition.rules.length === 0 ? {} : { "x-kubernetes-validations": definition.rules }),
            },
          },
        },
      ],
    },
  };
}
