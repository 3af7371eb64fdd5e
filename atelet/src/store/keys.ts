import { SubstrateError } from "@substrate/lib/errors.ts";

/** A segment that is also a plain file name: never "..", never hidden, at most what ext4 and xfs take. */
const segment = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,249}$/;

/** Throws INVALID for a key that could leave the store's folder or meet its own files. */
export function checkKey(key: string): string {
  if (!key.split("/").every((part) => segment.test(part))) {
    throw new SubstrateError(
      "INVALID",
      `"${key}" is no key of an object store: use letters, digits, ".", "_", "-" and "/"`,
    );
  }
  return key;
}

/** As checkKey, for a prefix that ends with "/"; "" is the whole store. */
export function checkPrefix(prefix: string): string {
  if (prefix === "") return prefix;
  if (!prefix.endsWith("/")) throw new SubstrateError("INVALID", `prefix "${prefix}" must end with "/"`);
  return `${checkKey(prefix.slice(0, -1))}/`;
}
