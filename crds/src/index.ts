export * from "./actor.ts";
export type { Condition } from "./fields.ts";
export * from "./snapshot.ts";
export * from "./template.ts";
