import { type IncomingMessage } from "node:http";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { OperationType } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { type Choices } from "../choices.ts";
import { type Leadership } from "../leader.ts";
import { type OperationRecord } from "../operation-record.ts";
import { type Operations } from "../operations.ts";
import { type AccessReviews } from "./access.ts";
import { groupVersion } from "./discovery.ts";
import { answerJson, type ApiRequest, type Handler } from "./server.ts";
import { badRequest } from "./status-error.ts";
import { parseResumeBody, parseSuspendBody } from "./suspend-body.ts";

export interface VerbOptions {
  operations: Operations;
  choices: Choices;
  access: AccessReviews;
  leadership: Leadership;
  log: Logger;
}

const bodyLimitBytes = 64 * 1024;

async function readBody(incoming: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes > bodyLimitBytes) throw badRequest(`the body is larger than ${bodyLimitBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function accept(request: ApiRequest, record: OperationRecord, log: Logger): void {
  const { name, namespace, uid } = request.actor.metadata;
  const type = record.type === OperationType.OPERATION_TYPE_SUSPEND ? "Suspend" : "Resume";
  log.info("operation accepted", {
    actor: keyOf(request.actor),
    operationId: record.id,
    type,
    user: request.caller.user,
  });
  answerJson(request.response, 202, {
    kind: "Operation",
    apiVersion: groupVersion,
    operationId: record.id,
    type,
    actor: { namespace, name, uid },
    startTime: new Date(record.startUnixMs).toISOString(),
  });
}

/** POST actors/NAME/suspend: starts it and answers 202 with the id that status.lastOperation will show. */
export function suspendHandler({ operations, leadership, log }: VerbOptions): Handler {
  return async (request) => {
    const options = parseSuspendBody(await readBody(request.incoming));
    leadership.proof();
    if (request.actor.spec.state === "Running") {
      const fix = "set it to OnDemand first, or to Suspended to keep it asleep";
      throw new SubstrateError(
        "KEPT_RUNNING",
        `Actor ${keyOf(request.actor)} is kept running by spec.state: Running; ${fix}`,
      );
    }
    accept(request, operations.suspend(request.actor, { ...options, justRead: true }), log);
  };
}

/** POST actors/NAME/resume: likewise. A tag as its source needs verb use on it. */
export function resumeHandler({ access, choices, operations, leadership, log }: VerbOptions): Handler {
  return async (request) => {
    const { actor, caller } = request;
    const chosen = parseResumeBody(await readBody(request.incoming));
    leadership.proof();
    if (typeof chosen.from === "string") {
      const { namespace = "" } = actor.metadata;
      const resource = { group: "substrate.run", resource: "snapshots", name: chosen.from };
      await access.require(caller, { namespace, verb: "use", ...resource });
    }
    accept(request, operations.resume(actor, await choices.of(actor, chosen)), log);
  };
}
