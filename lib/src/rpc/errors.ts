import { Metadata, type ServiceError, type StatusObject, status as grpcStatus } from "@grpc/grpc-js";
import { asSubstrateError, type ErrorCode, errorCatalogue, isErrorCode, SubstrateError } from "../errors.ts";

const codeKey = "substrate-code";
const retryKey = "substrate-retry-after-ms";

/** An error as a gRPC status; its code travels in metadata, because several of ours share one gRPC status. */
export function toStatus(error: unknown): StatusObject {
  const ours = asSubstrateError(error);
  const metadata = new Metadata();
  metadata.set(codeKey, ours.code);
  if (ours.retryAfterMs !== undefined) metadata.set(retryKey, String(ours.retryAfterMs));
  return { code: errorCatalogue[ours.code].grpc, details: ours.message, metadata };
}

/** The SubstrateError that the other side threw, or the nearest one when the status is not of our making. */
export function fromServiceError(error: ServiceError): SubstrateError {
  // grpc-js errors made before a connection have no metadata, though their type says so
  const metadata = error.metadata as Metadata | undefined;
  const code = metadata?.get(codeKey)[0];
  const retryAfterMs = Number(metadata?.get(retryKey)[0] ?? NaN);
  // callers tell their own cancellation themselves (unary): this one is the cut of a server that stops
  const details =
    error.code === grpcStatus.CANCELLED ? `the other side ended the call (${error.details})` : error.details;
  return new SubstrateError(isErrorCode(code) ? code : codeOfStatus(error.code), details, {
    cause: error,
    ...(Number.isFinite(retryAfterMs) ? { retryAfterMs } : {}),
  });
}

function codeOfStatus(code: grpcStatus): ErrorCode {
  if (code === grpcStatus.UNAVAILABLE || code === grpcStatus.CANCELLED) return "NODE_UNAVAILABLE";
  if (code === grpcStatus.DEADLINE_EXCEEDED) return "TIMEOUT";
  return "INTERNAL";
}

export function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "metadata" in error;
}

/** Whether a stream or call ended because one side of ours cancelled it. */
export function isCancelled(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === grpcStatus.CANCELLED;
}
