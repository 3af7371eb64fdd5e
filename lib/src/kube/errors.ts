/** What the API server (or the way to it) answered instead of the object. */
export class KubeError extends Error {
  override readonly name = "KubeError";
  /** HTTP status; 0 when no answer came at all. */
  readonly status: number;
  /** The Status object's reason (`NotFound`, `Conflict`, `Invalid` …); `Unreachable` or `Timeout` without an answer. */
  readonly reason: string;
  /** From Retry-After, when the server asks for patience. */
  readonly retryAfterMs: number | undefined;

  constructor(
    status: number,
    reason: string,
    message: string,
    options: { cause?: unknown; retryAfterMs?: number | undefined } = {},
  ) {
    super(message, { cause: options.cause });
    this.status = status;
    this.reason = reason;
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** Somebody else wrote first (409), or a uid precondition did not hold. */
export function isConflict(error: unknown): error is KubeError {
  return error instanceof KubeError && error.status === 409 && error.reason !== "AlreadyExists";
}

export function isAlreadyExists(error: unknown): error is KubeError {
  return error instanceof KubeError && error.status === 409 && error.reason === "AlreadyExists";
}

export function isNotFound(error: unknown): error is KubeError {
  return error instanceof KubeError && error.status === 404;
}

/**
 * The authorizer said no, in the words of forbiddenMessage in apiserver's responsewriters/errors.go. Admission (a quota,
 * a namespace that is being deleted) answers 403, too, in other words.
 */
export function isDenied(error: unknown): error is KubeError {
  return error instanceof KubeError && error.status === 403 && /forbidden: User ".*" cannot /s.test(error.message);
}

/** Nothing can be made in a namespace that is being deleted; admission's words in its lifecycle plugin. */
export function isNamespaceEnding(error: unknown): error is KubeError {
  return error instanceof KubeError && error.status === 403 && error.message.includes("because it is being terminated");
}

/** The resourceVersion is too old (410): list again. */
export function isGone(error: unknown): error is KubeError {
  return error instanceof KubeError && error.status === 410;
}

/** No answer came: the API server is away, or the connection broke. A write may or may not have happened. */
export function isUnreachable(error: unknown): error is KubeError {
  return error instanceof KubeError && error.status === 0;
}
