import { asSubstrateError, errorCatalogue, SubstrateError } from "@substrate/lib/errors.ts";
import { KubeError } from "@substrate/lib/kube/errors.ts";

/** metav1.Status: how every Kubernetes API says no. */
export interface StatusObject {
  kind: "Status";
  apiVersion: "v1";
  metadata: Record<string, never>;
  status: "Failure";
  message: string;
  reason: string;
  details: {
    name?: string;
    group: "substrate.run";
    kind: "actors";
    causes: { reason: string; message: string }[];
    retryAfterSeconds?: number;
  };
  code: number;
}

const reasons: Record<number, string> = {
  400: "BadRequest",
  403: "Forbidden",
  404: "NotFound",
  405: "MethodNotAllowed",
  409: "Conflict",
  500: "InternalError",
  503: "ServiceUnavailable",
  504: "Timeout",
};

/** Any error as a Status; a code of ours travels as the cause's reason. */
export function statusOf(error: unknown, name?: string): StatusObject {
  if (error instanceof MethodNotAllowed) return status(405, error.message, "MethodNotAllowed", name);
  if (error instanceof PathNotFound) return status(404, error.message, "NotFound", name);
  if (error instanceof KubeError)
    return status(error.status === 0 ? 503 : error.status, error.message, error.reason, name);
  const ours = asSubstrateError(error);
  const made = status(errorCatalogue[ours.code].http, ours.message, ours.code, name);
  if (ours.retryAfterMs === undefined) return made;
  return {
    ...made,
    details: { ...made.details, retryAfterSeconds: Math.max(1, Math.ceil(ours.retryAfterMs / 1_000)) },
  };
}

function status(code: number, message: string, cause: string, name: string | undefined): StatusObject {
  return {
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Failure",
    message,
    reason: reasons[code] ?? "Unknown",
    details: {
      ...(name === undefined ? {} : { name }),
      group: "substrate.run",
      kind: "actors",
      causes: [{ reason: cause, message }],
    },
    code,
  };
}

export class MethodNotAllowed extends Error {
  override readonly name = "MethodNotAllowed";
}

export class PathNotFound extends Error {
  override readonly name = "PathNotFound";
}

/** A request that the caller has to change; the message says what is allowed. */
export function badRequest(message: string): SubstrateError {
  return new SubstrateError("INVALID", message);
}
