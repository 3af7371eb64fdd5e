import { type IncomingMessage } from "node:http";
import { OperationType } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { type Leadership } from "../leader.ts";
import { type OperationRecord } from "../operation-record.ts";
import { type Operations } from "../operations.ts";
import { groupVersion } from "./discovery.ts";
import { answerJson, type ApiRequest, type Handler } from "./server.ts";
import { badRequest } from "./status-error.ts";
import { checkResumeBody, parseSuspendBody } from "./suspend-body.ts";

export interface VerbOptions {
  operations: Operations;
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
  log.info("operation accepted", { actor: keyOf(request.actor), operationId: record.id, type, user: request.user });
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
    accept(request, operations.suspend(request.actor, options), log);
  };
}

export function resumeHandler({ operations, leadership, log }: VerbOptions): Handler {
  return async (request) => {
    checkResumeBody(await readBody(request.incoming));
    leadership.proof();
    accept(request, operations.resume(request.actor), log);
  };
}
