export * from "./actor.ts";
export type { Condition, EnvVar } from "./fields.ts";
export type { Toleration } from "./placement-fields.ts";
export * from "./snapshot.ts";
export * from "./template.ts";
