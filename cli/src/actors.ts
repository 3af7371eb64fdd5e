import type { Actor, LastOperation } from "@substrate/crds/actor.ts";
import { type ActorAddress, actorPath, actorsPath } from "./address.ts";
import { type Connection } from "./connection.ts";
import { CommandFailure } from "./failure.ts";
import { jsonLines } from "./lines.ts";
import { refusal } from "./refusal.ts";

const group = "substrate.run";

/** @throws {CommandFailure} */
export async function getActor(connection: Connection, address: ActorAddress, signal?: AbortSignal): Promise<Actor> {
  const { status, body } = await connection.ask(actorPath(address), signal === undefined ? {} : { signal });
  if (status !== 200) {
    throw await refusal(connection, address, { verb: "get", resource: "actors", group }, status, body);
  }
  return JSON.parse(body) as Actor;
}

/** All of a namespace, or of all namespaces where it is undefined. @throws {CommandFailure} */
export async function listActors(connection: Connection, namespace: string | undefined): Promise<Actor[]> {
  const { status, body } = await connection.ask(actorsPath(namespace));
  if (status !== 200) {
    throw await refusal(connection, undefined, { verb: "list", resource: "actors", group }, status, body);
  }
  return (JSON.parse(body) as { items: Actor[] }).items;
}

/** How long the API server keeps one watch open, in seconds; then the next begins where it ended. */
const watchSeconds = 240;

/**
 * The actor at each change after `from`, until the caller stops reading. A watch that breaks or is too old goes on
 * from the actor as it is then. @throws {CommandFailure} also when the actor is deleted
 */
export async function* watchActor(
  connection: Connection,
  address: ActorAddress,
  from: Actor,
  signal: AbortSignal,
): AsyncGenerator<Actor> {
  let version = from.metadata.resourceVersion ?? "";
  for (;;) {
    const query = new URLSearchParams({
      watch: "true",
      fieldSelector: `metadata.name=${address.name}`,
      resourceVersion: version,
      timeoutSeconds: String(watchSeconds),
    });
    const response = await connection.open(`${actorsPath(address.namespace)}?${query.toString()}`, { signal });
    if (response.statusCode !== 200 && response.statusCode !== 410) {
      const chunks: Buffer[] = [];
      for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
      const body = Buffer.concat(chunks).toString();
      throw await refusal(
        connection,
        address,
        { verb: "watch", resource: "actors", group },
        response.statusCode ?? 0,
        body,
      );
    }
    if (response.statusCode === 200) {
      for await (const line of jsonLines(response)) {
        const event = line as { type: string; object: Actor };
        if (event.type === "ERROR") break;
        if (event.type === "DELETED") {
          throw new CommandFailure("notFound", `actor ${address.namespace}/${address.name} was deleted meanwhile`);
        }
        version = event.object.metadata.resourceVersion ?? version;
        yield event.object;
      }
    }
    const now = await getActor(connection, address, signal);
    version = now.metadata.resourceVersion ?? "";
    yield now;
  }
}

/** The operation of that id in an actor's status. */
export function operationOf(actor: Actor, id: string): LastOperation | undefined {
  const last = actor.status?.lastOperation;
  return last?.id === id ? last : undefined;
}
