import { transitionalAfterMs } from "./settled-states.ts";
import { type LastOperation } from "@substrate/crds/index.ts";
import { type Operation, OperationResult, OperationType } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";

/** One suspend or resume that was asked of the operator, from its start until its result stands in the status. */
export interface OperationRecord {
  id: string;
  type: OperationType;
  result: OperationResult;
  /** A code of the error catalogue; empty unless it failed. */
  reason: string;
  message: string;
  startUnixMs: number;
  /** Undefined while it runs. */
  endUnixMs: number | undefined;
  /** A resume for which a person chose what to start from. */
  choosing?: boolean;
}

function ofReport(operation: Operation): OperationRecord {
  return {
    ...operation,
    startUnixMs: Number(operation.startUnixMs),
    endUnixMs: isRunning(operation) ? undefined : Number(operation.endUnixMs),
  };
}

function isRunning({ result }: Operation): boolean {
  return resultOf(result) === "Running";
}

function toStatus(record: OperationRecord): LastOperation {
  return {
    id: record.id,
    type: typeOf(record.type),
    result: resultOf(record.result),
    ...(record.reason === "" ? {} : { reason: record.reason }),
    ...(record.message === "" ? {} : { message: record.message }),
    startTime: new Date(record.startUnixMs).toISOString(),
    ...(record.endUnixMs === undefined ? {} : { endTime: new Date(record.endUnixMs).toISOString() }),
  };
}

function typeOf(type: OperationType): LastOperation["type"] {
  switch (type) {
    case OperationType.OPERATION_TYPE_SUSPEND:
      return "Suspend";
    case OperationType.OPERATION_TYPE_TAG:
      return "Tag";
    case OperationType.OPERATION_TYPE_RESUME:
    case OperationType.OPERATION_TYPE_UNSPECIFIED:
    case OperationType.UNRECOGNIZED:
      return "Resume";
  }
}

function resultOf(result: OperationResult): LastOperation["result"] {
  switch (result) {
    case OperationResult.OPERATION_RESULT_SUCCEEDED:
      return "Succeeded";
    case OperationResult.OPERATION_RESULT_FAILED:
      return "Failed";
    case OperationResult.OPERATION_RESULT_RUNNING:
    case OperationResult.OPERATION_RESULT_UNSPECIFIED:
    case OperationResult.UNRECOGNIZED:
      return "Running";
  }
}

function isLasting({ endUnixMs, startUnixMs }: OperationRecord, now: Date): boolean {
  return endUnixMs !== undefined || now.getTime() - startUnixMs >= transitionalAfterMs;
}

/** When the first of those that run, and that `publishedOperation` hides at that same time, is to be shown. */
export function hiddenForMs(own: readonly OperationRecord[], now: Date): number | undefined {
  const left = own
    .filter((record) => !isLasting(record, now))
    .map(({ startUnixMs }) => startUnixMs + transitionalAfterMs - now.getTime());
  return left.length === 0 ? undefined : Math.min(...left);
}

/** What the node that holds the actor says of its newest operation. */
export interface NodeWord {
  /** False while the node's reports aren't known: it may know of anything. */
  known: boolean;
  operation: Operation | undefined;
}

/**
 * What status.lastOperation is to be. A finished operation of the operator that was never shown comes first, oldest
 * first, because somebody may wait for its id; then one of its own that lasts for over a second; else the newest known
 * one. So whoever was given an id sees it within seconds, whatever the node does by itself meanwhile.
 */
export function publishedOperation(
  own: readonly OperationRecord[],
  node: NodeWord,
  published: LastOperation | undefined,
  now: Date,
): LastOperation | undefined {
  const unshown = own.find(
    ({ endUnixMs, id }) => endUnixMs !== undefined && !(published?.id === id && published.endTime !== undefined),
  );
  if (unshown !== undefined) return toStatus(unshown);
  const reported = node.operation === undefined || node.operation.id === "" ? undefined : ofReport(node.operation);
  const mine = own.find(({ endUnixMs, id }) => endUnixMs === undefined && id === reported?.id);
  // the node's success is ours, before its answer has come; after its failure we may try again
  const heard = mine === undefined || reported?.result === OperationResult.OPERATION_RESULT_SUCCEEDED;
  if (mine !== undefined && heard && reported !== undefined) return toStatus(reported);
  const running = own.findLast((record) => record.endUnixMs === undefined && isLasting(record, now));
  if (running !== undefined) return toStatus(running);
  const seen = heard && reported !== undefined && isLasting(reported, now) ? [toStatus(reported)] : [];
  const before = published === undefined ? [] : [orphaned(published, own, node, now)];
  return [...before, ...seen].reduce<LastOperation | undefined>((best, next) => {
    if (best === undefined) return next;
    if (best.id === next.id) return best.endTime === undefined ? next : best;
    return Date.parse(next.startTime) >= Date.parse(best.startTime) ? next : best;
  }, undefined);
}

/** An operation that its node knows nothing of: it ended with the operator or the atelet that had begun it. */
function orphaned(published: LastOperation, own: readonly OperationRecord[], node: NodeWord, now: Date): LastOperation {
  const alive = published.endTime !== undefined || own.some(({ id }) => id === published.id);
  if (alive || !node.known || node.operation?.id === published.id) return published;
  return {
    ...published,
    result: "Failed",
    reason: "SHUTTING_DOWN",
    message:
      "the operator or the node's atelet was restarted meanwhile, and the node does not know of it: ask again if the actor is not as you want it",
    endTime: now.toISOString(),
  };
}
