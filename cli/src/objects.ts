import { type KubeObject } from "@substrate/lib/kube/object.ts";
import { type Connection } from "./connection.ts";
import { CommandFailure } from "./failure.ts";
import { rbacHint } from "./rbac.ts";
import { messageOf, parseStatus } from "./refusal.ts";

const root = "/apis/substrate.run/v1alpha1";

export type Plural = "actors" | "snapshots" | "templates";

const singular: Record<Plural, string> = { actors: "actor", snapshots: "snapshot", templates: "template" };

export function objectsPath(plural: Plural, namespace: string): string {
  return `${root}/namespaces/${encodeURIComponent(namespace)}/${plural}`;
}

/** Undefined when there is none of that name. @throws {CommandFailure} */
export async function findObject<T extends KubeObject>(
  connection: Connection,
  plural: Plural,
  namespace: string,
  name: string,
): Promise<T | undefined> {
  const { status, body } = await connection.ask(`${objectsPath(plural, namespace)}/${encodeURIComponent(name)}`);
  if (status === 200) return JSON.parse(body) as T;
  if (status === 404 && parseStatus(body)?.details?.name === name) return undefined;
  throw failure(connection, `${singular[plural]} ${namespace}/${name}`, "get", plural, status, body);
}

/** @throws {CommandFailure} */
export async function listObjects<T extends KubeObject>(
  connection: Connection,
  plural: Plural,
  namespace: string,
): Promise<T[]> {
  const { status, body } = await connection.ask(objectsPath(plural, namespace));
  if (status === 200) return (JSON.parse(body) as { items: T[] }).items;
  throw failure(connection, `${plural} of namespace ${namespace}`, "list", plural, status, body);
}

/** @throws {CommandFailure} saying what the API server has against it */
export async function createObject<T extends KubeObject>(
  connection: Connection,
  plural: Plural,
  kind: string,
  object: { metadata: { name: string; namespace: string }; spec: object },
): Promise<T> {
  const { name, namespace } = object.metadata;
  const { status, body } = await connection.ask(objectsPath(plural, namespace), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ apiVersion: "substrate.run/v1alpha1", kind, ...object }),
  });
  if (status === 201) return JSON.parse(body) as T;
  const what = `${singular[plural]} ${namespace}/${name}`;
  if (status === 409) {
    throw new CommandFailure(
      "operationFailed",
      `${what} exists already`,
      `choose another name, or delete it with "kubectl delete ${singular[plural]} ${name} -n ${namespace}"`,
    );
  }
  throw failure(connection, what, "create", plural, status, body);
}

function failure(
  connection: Connection,
  what: string,
  verb: string,
  plural: Plural,
  status: number,
  body: string,
): CommandFailure {
  const message = messageOf(status, body);
  if (status === 403) {
    const hint = rbacHint(connection, { verb, resource: plural, group: "substrate.run" });
    return new CommandFailure("forbidden", `${what}: ${message}`, hint);
  }
  return new CommandFailure(status === 404 ? "unavailable" : "operationFailed", `${what}: ${message}`);
}
