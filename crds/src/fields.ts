import { z } from "zod";

/** A rule of the API server: a CEL expression over `self` (and `oldSelf`), and what to do when it is false. */
export interface Rule {
  rule: string;
  message: string;
  reason?: "FieldValueInvalid" | "FieldValueForbidden" | "FieldValueRequired" | "FieldValueDuplicate";
  fieldPath?: string;
}

/** Extra keys of a field's OpenAPI schema; every field has a description, for `kubectl explain`. */
export interface FieldMeta {
  description: string;
  rules?: Rule[];
  format?: "int64" | "int32" | "date-time";
  /** Keys of a list that is a map. */
  mapKeys?: string[];
  intOrString?: true;
}

/** FieldMeta as `.meta()` of a zod schema. */
export function field({ description, rules, format, mapKeys, intOrString }: FieldMeta): Record<string, unknown> {
  return {
    description,
    ...(format === undefined ? {} : { format }),
    ...(rules === undefined ? {} : { "x-kubernetes-validations": rules }),
    ...(mapKeys === undefined ? {} : { "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": mapKeys }),
    ...(intOrString === undefined ? {} : { "x-kubernetes-int-or-string": true }),
  };
}

/** CEL: `self` is a DNS label (RFC 1123) but for its length. */
const label = "'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'";

const nameOf = (rule: Omit<Rule, "fieldPath">): Rule => ({ ...rule, fieldPath: ".metadata.name" });

/** Of an object's name, at the root of its schema, where alone the API server lets rules see it. */
export const labelNameRules: Rule[] = [
  nameOf({
    rule: "self.metadata.name.size() <= 63",
    message: "must be at most 63 characters long",
  }),
  nameOf({
    rule: "!self.metadata.name.contains('.')",
    message: "must not contain '.': use '-' instead",
  }),
  nameOf({
    // whatever else a label is not, the API server's own rule for names refuses
    rule: `self.metadata.name.contains('.') || self.metadata.name.matches(${label})`,
    message: "must be lower-case letters, digits and '-', beginning and ending with a letter or digit",
  }),
];

export const hostNameRules: Rule[] = [
  ...labelNameRules,
  nameOf({
    rule: "!self.metadata.name.contains('--')",
    message: "must not contain '--', which separates the parts of an actor's host name: use a single '-'",
  }),
];

/** A reference by name to an object in the same namespace. */
export const objectName = (description: string) => z.string().min(1).max(253).meta(field({ description }));

const durationPattern = "'^([0-9]+(ms|s|m|h))+$'";

/** A duration as text (`10s`), read with lib/resources. `minimum` is a duration, too. */
export function duration(description: string, minimum = "0s") {
  const isDuration = `self.matches(${durationPattern})`;
  const rules: Rule[] = [
    { rule: isDuration, message: 'must be a duration, for instance "500ms", "10s", "5m" or "1h30m"' },
    {
      rule: `!${isDuration} || (duration(self) >= duration('${minimum}') && duration(self) <= duration('720h'))`,
      message: `must be between ${minimum} and 720h`,
    },
  ];
  return z.string().max(24).meta(field({ description, rules }));
}

/** CEL: `a` ≤ `b`, two durations beside each other; true when one is no duration, which its own rule reports. */
export function notLonger(a: string, b: string): string {
  const text = (name: string): string => `self.${name}.matches(${durationPattern})`;
  return `!${text(a)} || !${text(b)} || duration(self.${a}) <= duration(self.${b})`;
}

/** A Kubernetes quantity, as a number or as text, read with lib/resources. */
export function quantity(
  description: string,
  { minimum, maximum, example }: { minimum: string; maximum: string; example: string },
) {
  // no pattern: int-or-string cannot be bounded, and a regular expression over it is too costly for the API server
  const text = "string(self)";
  const rules: Rule[] = [
    { rule: `isQuantity(${text})`, message: `must be a quantity, for instance ${example}` },
    {
      rule: `!isQuantity(${text}) || (quantity(${text}).compareTo(quantity('${minimum}')) >= 0 && quantity(${text}).compareTo(quantity('${maximum}')) <= 0)`,
      message: `must be between ${minimum} and ${maximum}, for instance ${example}`,
    },
  ];
  return z.union([z.int(), z.string()]).meta(field({ description, rules, intOrString: true }));
}

export const time = (description: string) => z.string().meta(field({ description, format: "date-time" }));

/** A count or size: a whole number, by default never negative. */
export const count = (description: string, minimum = 0) =>
  z
    .int()
    .min(minimum)
    .meta(field({ description, format: "int64" }));

export const text = (description: string, maxLength = 1024) => z.string().max(maxLength).meta(field({ description }));

/** `observedGeneration` of a status that the API server has filled in: the operator has not written it yet. */
export const NOT_OBSERVED = -1;

/** The generation of the spec that a status speaks of; NOT_OBSERVED before the operator's first. */
export const observedGeneration = count(
  "The metadata.generation of the spec that this status is about; -1 until the operator has seen the object.",
  NOT_OBSERVED,
).exactOptional();

const condition = z
  .object({
    type: z
      .string()
      .min(1)
      .max(63)
      .meta(field({ description: "What the condition is about, for instance Ready." })),
    status: z.enum(["True", "False", "Unknown"]).meta(field({ description: "Whether it holds." })),
    reason: z
      .string()
      .min(1)
      .max(128)
      .meta(field({ description: "Why, as one word for programs." })),
    message: text("Why, for people, and what can be done about it.", 4096),
    lastTransitionTime: time("When the status changed last."),
    observedGeneration: count("The metadata.generation of the spec that it is about.").exactOptional(),
  })
  .meta(field({ description: "One aspect of the object's state." }));

export type Condition = z.infer<typeof condition>;

export const conditions = (description: string) =>
  z
    .array(condition)
    .max(16)
    .meta(field({ description, mapKeys: ["type"] }));

const secretKeyRef = z
  .object({
    name: objectName("Name of a Secret in the same namespace."),
    key: z
      .string()
      .min(1)
      .max(253)
      .meta(field({ description: "Key of the Secret's data." })),
  })
  .meta(field({ description: "One key of a Secret." }));

const envVar = z
  .object({
    name: z
      .string()
      .min(1)
      .max(256)
      .meta(
        field({
          description: "Name of the variable.",
          rules: [
            {
              rule: "self.matches('^[A-Za-z_][A-Za-z0-9_.-]*$')",
              message: "must be letters, digits, '_', '.' and '-', not beginning with a digit, for instance LOG_LEVEL",
            },
          ],
        }),
      ),
    value: text("Its value.", 32_768).exactOptional(),
    valueFrom: z
      .object({ secretKeyRef })
      .meta(field({ description: "Where the value comes from." }))
      .exactOptional(),
  })
  .meta(
    field({
      description: "A variable of the program's environment.",
      rules: [
        {
          rule: "has(self.value) != has(self.valueFrom)",
          message: "needs exactly one of value and valueFrom: give a text, or a secretKeyRef",
        },
      ],
    }),
  );

export type EnvVar = z.infer<typeof envVar>;

export const environment = (description: string) =>
  z
    .array(envVar)
    .max(64)
    .meta(field({ description, mapKeys: ["name"] }));
