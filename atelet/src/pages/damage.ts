import { SubstrateError } from "@substrate/lib/errors.ts";

/** @param what names the file or pack, and what is wrong with it. */
export function damaged(what: string): SubstrateError {
  return new SubstrateError("SNAPSHOT_DAMAGED", what);
}

/** @returns the message of an error that says that something is damaged or missing; any other error is thrown on. */
export function asDamage(error: unknown): string {
  if (error instanceof SubstrateError && error.code === "SNAPSHOT_DAMAGED") return error.message;
  if (error instanceof Error && "code" in error && error.code === "ENOENT") return error.message;
  throw error;
}
