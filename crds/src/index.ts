export * from "./actor.ts";
export { type Condition, type EnvVar, NOT_OBSERVED } from "./fields.ts";
export type { Toleration } from "./placement-fields.ts";
export * from "./snapshot.ts";
export * from "./template.ts";
