import { createHash } from "node:crypto";
import { type EnvVar, type Template } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Environment } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { type Secret, secrets } from "@substrate/lib/kube/types.ts";

/** How soon a Secret that is missing is looked for again. */
export const missingSecretRetryMs = 10_000;

/** Whose environment it is. */
export interface EnvOwner {
  /** For messages, for instance "Actor default/counter". */
  about: string;
  namespace: string;
  /** UID of the Template: what digests of secrets depend on beside them. */
  templateUid: string;
}

export function templateOwner({ metadata }: Template): EnvOwner {
  const { name, namespace = "", uid = "" } = metadata;
  return { about: `Template ${namespace}/${name}`, namespace, templateUid: uid };
}

/** The Template's variables with the Actor's over them, by name. */
export function mergeEnv(template: readonly EnvVar[], actor: readonly EnvVar[] = []): EnvVar[] {
  const byName = new Map([...template, ...actor].map((variable) => [variable.name, variable]));
  return [...byName.values()];
}

export function hasSecrets(env: readonly EnvVar[]): boolean {
  return env.some(({ valueFrom }) => valueFrom !== undefined);
}

/**
 * Tells one environment from another. Where there are secrets it depends on the Template, too, so that no table made once
 * tells them: not on the actor, as a program that began from another one's state has that one's digest.
 */
function digestOf(owner: EnvOwner, env: readonly EnvVar[], variables: Environment["variables"]): string {
  if (variables.length === 0) return "";
  const pairs = variables.map(({ name, value }) => [name, value]).toSorted(([a = ""], [b = ""]) => (a < b ? -1 : 1));
  const facts = [hasSecrets(env) ? owner.templateUid : "", pairs];
  return `sha256:${createHash("sha256").update(JSON.stringify(facts)).digest("hex")}`;
}

/**
 * Resolves what an environment names. Values leave this process only in calls to a node: they must never come into a
 * status, an Event, a log or an error.
 */
export class Environments {
  readonly #client: Pick<KubeClient, "get">;

  constructor(client: Pick<KubeClient, "get">) {
    this.#client = client;
  }

  /** Reads each Secret anew. Throws SECRET_MISSING, INVALID for a value that no process can be given, or KubeError. */
  async resolve(owner: EnvOwner, env: readonly EnvVar[]): Promise<Environment> {
    const names = new Set(env.flatMap(({ valueFrom }) => valueFrom?.secretKeyRef.name ?? []));
    const found = new Map(
      await Promise.all(
        [...names].map(async (name) => [name, await this.#client.get(secrets, name, owner.namespace)] as const),
      ),
    );
    const variables = env.map(({ name, value, valueFrom }) => {
      const ref = valueFrom?.secretKeyRef;
      const resolved = ref === undefined ? (value ?? "") : valueOf(owner, name, ref, found.get(ref.name));
      if (!resolved.includes("\0")) return { name, value: resolved };
      const where = ref === undefined ? "its value" : `key "${ref.key}" of Secret ${owner.namespace}/${ref.name}`;
      throw new SubstrateError(
        "INVALID",
        `${owner.about}: variable ${name}: ${where} has a NUL byte: no program can get it`,
      );
    });
    return { variables, digest: digestOf(owner, env, variables) };
  }
}

function valueOf(
  { about, namespace }: EnvOwner,
  variable: string,
  { name, key }: { name: string; key: string },
  secret: Secret | undefined,
): string {
  const encoded = secret?.data?.[key];
  if (encoded !== undefined) return Buffer.from(encoded, "base64").toString("utf8");
  const problem =
    secret === undefined
      ? `Secret ${namespace}/${name} does not exist: create it with key "${key}"`
      : `Secret ${namespace}/${name} has no key "${key}": add it`;
  const message = `${about}: variable ${variable}: ${problem}, or correct env`;
  throw new SubstrateError("SECRET_MISSING", message, { retryAfterMs: missingSecretRetryMs });
}
