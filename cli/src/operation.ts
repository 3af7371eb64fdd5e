import type { Actor, LastOperation } from "@substrate/crds/actor.ts";
import { formatDurationMs } from "@substrate/lib/resources.ts";
import { getActor, operationOf, watchActor } from "./actors.ts";
import { type ActorAddress, subresourcePath } from "./address.ts";
import { type Connection } from "./connection.ts";
import { CommandFailure } from "./failure.ts";
import { type Progress } from "./progress.ts";
import { refusal } from "./refusal.ts";

export interface Started {
  readonly id: string;
  /** As it was before: what the operation has changed is seen against it. */
  readonly before: Actor;
  readonly startedAt: number;
}

export interface Finished {
  readonly operationId: string;
  readonly type: "Suspend" | "Resume";
  readonly result: "Succeeded";
  /** From the call to the news of its end. */
  readonly durationMs: number;
  readonly actor: Actor;
}

type Verb = "suspend" | "resume";

/** Asks for the operation. @throws {CommandFailure} */
export async function start(
  connection: Connection,
  address: ActorAddress,
  verb: Verb,
  body: object | undefined,
): Promise<Started> {
  const before = await getActor(connection, address);
  const startedAt = performance.now();
  const answer = await connection.ask(subresourcePath(address, verb), {
    method: "POST",
    headers: { "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (answer.status !== 202) {
    const asked = { verb: "create", resource: `actors/${verb}`, group: "subresources.substrate.run" };
    throw await refusal(connection, address, asked, answer.status, answer.body);
  }
  const { operationId } = JSON.parse(answer.body) as { operationId: string };
  return { id: operationId, before, startedAt };
}

/** Follows status.lastOperation until that operation has ended. @throws {CommandFailure} when it failed or time is up */
export async function finish(
  connection: Connection,
  address: ActorAddress,
  verb: Verb,
  started: Started,
  timeoutMs: number,
  progress: Progress,
): Promise<Finished> {
  const timeout = AbortSignal.timeout(timeoutMs);
  const key = `${address.namespace}/${address.name}`;
  try {
    for await (const actor of watchActor(connection, address, started.before, timeout)) {
      progress.say(`${verb} of ${key}: ${actor.status?.state ?? "no state yet"}`);
      const operation = operationOf(actor, started.id);
      if (operation === undefined ? wasOvertaken(actor, started) : operation.result !== "Running") {
        return ended(verb, key, started, actor, operation);
      }
    }
  } catch (error) {
    if (timeout.aborted) throw timeUp(verb, key, started, timeoutMs);
    throw error;
  }
  throw timeUp(verb, key, started, timeoutMs);
}

/** A newer operation stands in the status: ours has ended, because an actor has one at a time. */
function wasOvertaken(actor: Actor, started: Started): boolean {
  const last = actor.status?.lastOperation;
  return last !== undefined && last.id !== started.before.status?.lastOperation?.id;
}

function ended(
  verb: Verb,
  key: string,
  started: Started,
  actor: Actor,
  operation: LastOperation | undefined,
): Finished {
  if (operation?.result === "Failed") {
    const reason = operation.reason === undefined ? "" : ` (${operation.reason})`;
    throw new CommandFailure(
      "operationFailed",
      `${verb} of actor ${key} failed: ${operation.message ?? "no message"}${reason}`,
      operation.reason === "REQUESTS_OPEN" ? "wait for its requests, or cut them with --force" : undefined,
    );
  }
  if (operation === undefined && !leftItsMark(verb, started.before, actor)) {
    throw new CommandFailure(
      "operationFailed",
      `${verb} of actor ${key} was followed by another operation at once, and how it ended can't be seen any more`,
      `see "kubectl ate get ${actor.metadata.name} -n ${actor.metadata.namespace ?? "default"}"`,
    );
  }
  return {
    operationId: started.id,
    type: verb === "suspend" ? "Suspend" : "Resume",
    result: "Succeeded",
    durationMs: Math.round(performance.now() - started.startedAt),
    actor,
  };
}

/** A suspend counts the generation up; what runs after a resume was asked for has been resumed. */
function leftItsMark(verb: Verb, before: Actor, after: Actor): boolean {
  if (verb === "suspend") return (after.status?.generation ?? 0) > (before.status?.generation ?? 0);
  return after.status?.state === "ACTOR_STATE_RUNNING";
}

function timeUp(verb: Verb, key: string, started: Started, timeoutMs: number): CommandFailure {
  return new CommandFailure(
    "timeout",
    `${verb} of actor ${key} has not ended within ${formatDurationMs(timeoutMs)}; operation ${started.id} goes on`,
    `follow it with "kubectl get actor ${key.split("/")[1] ?? ""} -n ${key.split("/")[0] ?? ""} -w"`,
  );
}
