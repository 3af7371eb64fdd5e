import { status as grpcStatus } from "@grpc/grpc-js";

/**
 * Every error that crosses a process boundary or reaches a person has a code of this catalogue. `grpc` and `http`
 * say how it travels; docs/reference/errors.md says what to do about it (a test compares the two).
 */
export const errorCatalogue = {
  UNKNOWN_ACTOR: { grpc: grpcStatus.NOT_FOUND, http: 404 },
  INVALID: { grpc: grpcStatus.INVALID_ARGUMENT, http: 400 },
  /** The actor is there, but its Template has no port of that name or number. */
  UNKNOWN_PORT: { grpc: grpcStatus.NOT_FOUND, http: 404 },
  /** The running program refused the connection or broke it before it had answered. */
  ACTOR_UNREACHABLE: { grpc: grpcStatus.UNAVAILABLE, http: 502 },
  /** Another operation of this actor is under way and cannot be joined. */
  OPERATION_IN_PROGRESS: { grpc: grpcStatus.ABORTED, http: 409 },
  /** Requests were still open after the drain timeout; the suspend did not happen. */
  REQUESTS_OPEN: { grpc: grpcStatus.ABORTED, http: 409 },
  /** spec.state is Suspended. */
  HELD: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  /** spec.state is Running: no suspend but that of a drain. */
  KEPT_RUNNING: { grpc: grpcStatus.FAILED_PRECONDITION, http: 409 },
  /** The epoch was released or surpassed on this node. */
  MOVED: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  /** The grant names another session than the node's current one. */
  STALE_SESSION: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  /** The call carries the term of a leader that has been replaced. */
  STALE_TERM: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  /** A sandbox or an unsaved generation exists: the epoch cannot be released yet. */
  NOT_RELEASABLE: { grpc: grpcStatus.FAILED_PRECONDITION, http: 409 },
  NO_ROOM: { grpc: grpcStatus.RESOURCE_EXHAUSTED, http: 503 },
  /** More requests are held for an actor, or in all, than the router's bound. */
  TOO_MANY_HELD: { grpc: grpcStatus.RESOURCE_EXHAUSTED, http: 503 },
  /** An actor, or a node, has as many exec sessions open as it may. */
  TOO_MANY_SESSIONS: { grpc: grpcStatus.RESOURCE_EXHAUSTED, http: 503 },
  IMAGE_UNAVAILABLE: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  IMAGE_INVALID: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  /** The program ended, or its sandbox died. */
  PROGRAM_EXITED: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  /** The actor's Template is not there. */
  TEMPLATE_MISSING: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  /** No run of the actor's Template has succeeded yet. */
  TEMPLATE_NOT_READY: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  /** A Secret, or a key of it, that the program's environment names is not there. */
  SECRET_MISSING: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  /** The newer revision lacks a volume of the actor. */
  UPGRADE_REFUSED: { grpc: grpcStatus.FAILED_PRECONDITION, http: 409 },
  NOT_READY: { grpc: grpcStatus.DEADLINE_EXCEEDED, http: 503 },
  CHECKPOINT_FAILED: { grpc: grpcStatus.INTERNAL, http: 500 },
  /** Three short lives in a row from one source: nothing starts it but a resume that says from what. */
  CRASH_LOOP: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  RESTORE_FAILED: { grpc: grpcStatus.INTERNAL, http: 503 },
  /** The Snapshot in spec.source is not there. */
  SNAPSHOT_MISSING: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  /** The Snapshot in spec.source is still being made. */
  SNAPSHOT_NOT_READY: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  /** The Snapshot in spec.source can never be this actor's source. */
  SNAPSHOT_UNUSABLE: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  SNAPSHOT_DAMAGED: { grpc: grpcStatus.DATA_LOSS, http: 503 },
  /** The head names a higher epoch: what this node has is not the newest. */
  SUPERSEDED: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  STORE_UNAVAILABLE: { grpc: grpcStatus.UNAVAILABLE, http: 503 },
  STORE_FOREIGN: { grpc: grpcStatus.FAILED_PRECONDITION, http: 503 },
  NODE_UNAVAILABLE: { grpc: grpcStatus.UNAVAILABLE, http: 503 },
  /** The actor's node has been silent for so long that it counts as lost; nothing moves before it is back. */
  NODE_LOST: { grpc: grpcStatus.UNAVAILABLE, http: 503 },
  SHUTTING_DOWN: { grpc: grpcStatus.UNAVAILABLE, http: 503 },
  FORBIDDEN: { grpc: grpcStatus.PERMISSION_DENIED, http: 403 },
  TIMEOUT: { grpc: grpcStatus.DEADLINE_EXCEEDED, http: 504 },
  INTERNAL: { grpc: grpcStatus.INTERNAL, http: 500 },
} as const;

export type ErrorCode = keyof typeof errorCatalogue;

export interface SubstrateErrorOptions {
  cause?: unknown;
  /** When trying again may help; becomes Retry-After. */
  retryAfterMs?: number;
}

/** An error whose code is in the catalogue and whose message tells a person which object it is about. */
export class SubstrateError extends Error {
  override readonly name = "SubstrateError";
  readonly code: ErrorCode;
  readonly retryAfterMs: number | undefined;

  constructor(code: ErrorCode, message: string, options: SubstrateErrorOptions = {}) {
    super(message, { cause: options.cause });
    this.code = code;
    this.retryAfterMs = options.retryAfterMs;
  }
}

export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === "string" && Object.hasOwn(errorCatalogue, value);
}

/** The error itself if it is ours, else INTERNAL with the original as its cause. */
export function asSubstrateError(error: unknown): SubstrateError {
  if (error instanceof SubstrateError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new SubstrateError("INTERNAL", message, { cause: error });
}
