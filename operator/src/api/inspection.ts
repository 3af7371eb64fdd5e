import { type Actor } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ReadUsageResponse } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { type Operation, OperationResult, OperationType } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { type AteletLink } from "../atelet-link.ts";
import { type Atelets } from "../atelets.ts";
import { groupVersion } from "./discovery.ts";
import { answerJson, type Handler } from "./server.ts";

/** GET actors/NAME/usage: what the actor takes of its node now. */
export function usageHandler(atelets: Atelets): Handler {
  return async ({ actor, response, signal }) => {
    const link = linkOf(atelets, actor, "so it uses nothing");
    const usage = await link.readUsage(actor.metadata.uid ?? "", signal);
    answerJson(response, 200, {
      kind: "ActorUsage",
      apiVersion: groupVersion,
      metadata: metadataOf(actor),
      nodeName: link.lease.nodeName,
      ...usageFields(usage),
    });
  };
}

/** GET actors/NAME/operations: what was done to the actor on its node, newest first, with the times of the phases. */
export function operationsHandler(atelets: Atelets): Handler {
  return async ({ actor, response, signal }) => {
    const link = linkOf(atelets, actor, "and the node that it ran on last keeps what was done to it");
    const { operations } = await link.readOperations(actor.metadata.uid ?? "", signal);
    answerJson(response, 200, {
      kind: "ActorOperationList",
      apiVersion: groupVersion,
      metadata: metadataOf(actor),
      items: operations.map(operationFields),
    });
  };
}

function linkOf(atelets: Atelets, actor: Actor, consequence: string): AteletLink {
  const nodeName = actor.status?.assignment?.nodeName;
  if (nodeName !== undefined) return atelets.require(nodeName);
  throw new SubstrateError(
    "NODE_UNAVAILABLE",
    `Actor ${keyOf(actor)} is on no node now, ${consequence}: wake it first`,
  );
}

function metadataOf({ metadata: { name, namespace, uid } }: Actor): object {
  return { name, namespace, uid };
}

function usageFields(usage: ReadUsageResponse): object {
  return {
    sampledAt: new Date(Number(usage.sampledUnixMs)).toISOString(),
    memoryBytes: Number(usage.memoryBytes),
    memoryLimitBytes: Number(usage.memoryLimitBytes),
    // of about 100 days of one core a number still has every nanosecond
    cpuNanoseconds: Number(usage.cpuNs),
    cpuLimitMillis: usage.cpuLimitMillis,
    localBytes: Number(usage.localBytes),
    volumes: usage.volumes.map(({ name, usedBytes, limitBytes }) => ({
      name,
      usedBytes: Number(usedBytes),
      ...(limitBytes === 0n ? {} : { limitBytes: Number(limitBytes) }),
    })),
  };
}

const types: Partial<Record<OperationType, string>> = {
  [OperationType.OPERATION_TYPE_RESUME]: "Resume",
  [OperationType.OPERATION_TYPE_SUSPEND]: "Suspend",
  [OperationType.OPERATION_TYPE_TAG]: "Tag",
};

const results: Partial<Record<OperationResult, string>> = {
  [OperationResult.OPERATION_RESULT_RUNNING]: "Running",
  [OperationResult.OPERATION_RESULT_SUCCEEDED]: "Succeeded",
  [OperationResult.OPERATION_RESULT_FAILED]: "Failed",
};

function operationFields(operation: Operation): object {
  const { id, type, result, reason, message, startUnixMs, endUnixMs, phases } = operation;
  return {
    id,
    type: types[type] ?? "Unknown",
    result: results[result] ?? "Unknown",
    ...(reason === "" ? {} : { reason }),
    ...(message === "" ? {} : { message }),
    startTime: new Date(Number(startUnixMs)).toISOString(),
    ...(endUnixMs === 0n ? {} : { endTime: new Date(Number(endUnixMs)).toISOString() }),
    phases,
  };
}
