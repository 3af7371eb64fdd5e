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
}

function ofReport(operation: Operation): OperationRecord {
  return {
    ...operation,
    startUnixMs: Number(operation.startUnixMs),
    endUnixMs: operation.endUnixMs === 0n ? undefined : Number(operation.endUnixMs),
  };
}

function toStatus(record: OperationRecord): LastOperation {
  return {
    id: record.id,
    type: record.type === OperationType.OPERATION_TYPE_SUSPEND ? "Suspend" : "Resume",
    result: resultOf(record.result),
    ...(record.reason === "" ? {} : { reason: record.reason }),
    ...(record.message === "" ? {} : { message: record.message }),
    startTime: new Date(record.startUnixMs).toISOString(),
    ...(record.endUnixMs === undefined ? {} : { endTime: new Date(record.endUnixMs).toISOString() }),
  };
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

/**
 * What status.lastOperation is to be. A finished operation of the operator that was never shown comes first, oldest
 * first, because somebody may wait for its id; else the newest known one, where a result beats "running" and what runs
 * for less than a second isn't mentioned.
 */
export function publishedOperation(
  own: readonly OperationRecord[],
  reported: Operation | undefined,
  published: LastOperation | undefined,
  now: Date,
): LastOperation | undefined {
  const unshown = own.find(
    ({ endUnixMs, id }) => endUnixMs !== undefined && !(published?.id === id && published.endTime !== undefined),
  );
  if (unshown !== undefined) return toStatus(unshown);
  const seen = reported === undefined || reported.id === "" ? own : [...own, ofReport(reported)];
  const lasting = ({ endUnixMs, startUnixMs }: OperationRecord): boolean =>
    endUnixMs !== undefined || now.getTime() - startUnixMs >= transitionalAfterMs;
  const known = [...(published === undefined ? [] : [published]), ...seen.filter(lasting).map(toStatus)];
  const newest = known.reduce<LastOperation | undefined>((best, next) => {
    if (best === undefined) return next;
    if (best.id === next.id) return best.endTime === undefined ? next : best;
    return Date.parse(next.startTime) >= Date.parse(best.startTime) ? next : best;
  }, undefined);
  return newest;
}
