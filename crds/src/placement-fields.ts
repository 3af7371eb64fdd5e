import { z } from "zod";
import { field } from "./fields.ts";

const dnsLabel = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const labelName = "([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)";
/** As the API server wants the keys of labels and taints: an optional DNS subdomain, and a name of at most 63 characters. */
const keyPattern = `'^(${dnsLabel}([.]${dnsLabel})*/)?${labelName}$'`;
/** A label's value may be empty. */
const valuePattern = `'^${labelName}?$'`;

/** Labels that a node must have, all of them, as in a pod. */
export const nodeSelector = (description: string) =>
  z
    .record(
      z.string(),
      z
        .string()
        .max(63)
        .meta(field({ description: "Value of the label." })),
    )
    .meta({
      ...field({
        description,
        rules: [
          {
            rule: `self.all(k, k.size() <= 317 && k.matches(${keyPattern}))`,
            message: 'every key must be a label\'s key, for instance "disk" or "topology.kubernetes.io/zone"',
          },
          {
            rule: `self.all(k, self[k].matches(${valuePattern}))`,
            message:
              "every value must be a label's value: at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
          },
        ],
      }),
      maxProperties: 16,
    });

const toleration = z
  .object({
    key: z
      .string()
      .max(317)
      .meta(field({ description: "Key of the taints that it is about; absent with operator Exists: all keys." }))
      .exactOptional(),
    operator: z
      .enum(["Exists", "Equal"])
      .meta(field({ description: "Equal (when absent): the taint's value must be this one. Exists: any value." }))
      .exactOptional(),
    value: z
      .string()
      .max(63)
      .meta(field({ description: "Value of the taint, for operator Equal." }))
      .exactOptional(),
    effect: z
      .enum(["NoSchedule", "PreferNoSchedule", "NoExecute"])
      .meta(field({ description: "Effect of the taints that it is about; absent: all effects." }))
      .exactOptional(),
  })
  .meta(
    field({
      description: "Taints in spite of which a node may be taken.",
      rules: [
        {
          rule: "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
          message: "needs a key, or operator Exists, which without a key tolerates every taint",
          fieldPath: ".operator",
        },
        {
          rule: "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
          message: "must be left out with operator Exists, which takes any value",
          fieldPath: ".value",
        },
        {
          rule: `!has(self.key) || self.key == '' || self.key.matches(${keyPattern})`,
          message: 'must be a taint\'s key, for instance "dedicated" or "node.kubernetes.io/unschedulable"',
          fieldPath: ".key",
        },
        {
          rule: `!has(self.value) || self.value.matches(${valuePattern})`,
          message: "must be letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
          fieldPath: ".value",
        },
      ],
    }),
  );

export type Toleration = z.infer<typeof toleration>;

export const tolerations = (description: string) => z.array(toleration).max(16).meta(field({ description }));
