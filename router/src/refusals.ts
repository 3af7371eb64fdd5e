import { isErrorCode, SubstrateError, type ErrorCode } from "@substrate/lib/errors.ts";
import { type Holding } from "./holding.ts";
import { type Upstream } from "./upstream.ts";

/** What a caller may expect after a reason that nobody gave a time for. */
const defaultRetryAfterMs = 5_000;

/** After these the wake is tried again while requests wait: they end by themselves. */
const passing: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "OPERATION_IN_PROGRESS",
  "REQUESTS_OPEN",
  "MOVED",
  "STALE_SESSION",
  "STALE_TERM",
  "NO_ROOM",
  "SUPERSEDED",
  "NODE_UNAVAILABLE",
  "NODE_LOST",
  "STORE_UNAVAILABLE",
  "SHUTTING_DOWN",
  "TIMEOUT",
]);

/** After these an atelet cannot wake the actor, but the operator may elsewhere. */
const elsewhere: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "MOVED",
  "STALE_SESSION",
  "NO_ROOM",
  "SUPERSEDED",
  "UNKNOWN_ACTOR",
]);

export function mayPass(error: SubstrateError): boolean {
  return passing.has(error.code);
}

export function mayGoElsewhere(error: SubstrateError): boolean {
  return elsewhere.has(error.code);
}

export function held(key: string): SubstrateError {
  return new SubstrateError(
    "HELD",
    `actor ${key} is kept asleep: its spec.state is Suspended; set it to OnDemand to let requests wake it`,
  );
}

export function failing(key: string, holding: Holding): SubstrateError {
  const route = holding.route;
  const reason = route?.message === undefined || route.message === "" ? "its node gives no reason" : route.message;
  const retryAfterMs = Number(route?.retryAfterMs ?? 0n);
  const message = aboutWake(key, reason);
  if (isErrorCode(route?.reason)) return new SubstrateError(route.reason, message);
  // An atelet that gives no time says that trying again doesn't help.
  if (retryAfterMs === 0) return new SubstrateError("CRASH_LOOP", message);
  return new SubstrateError("NOT_READY", message, { retryAfterMs });
}

export function unknownState(key: string, state: string): SubstrateError {
  return new SubstrateError(
    "NODE_UNAVAILABLE",
    `actor ${key} is in a state that this router doesn't know (${state}): upgrade the router`,
    { retryAfterMs: defaultRetryAfterMs },
  );
}

export function unknownPort(key: string, port: string | undefined, upstreams: readonly Upstream[]): SubstrateError {
  const known = upstreams.map((upstream) => `${upstream.portName} (${upstream.containerPort})`).join(", ");
  return new SubstrateError(
    "UNKNOWN_PORT",
    known === ""
      ? `actor ${key} has no ports: give its Template's container a port`
      : `actor ${key} has no port ${port ?? ""}; its ports are ${known}`,
  );
}

/** For a request under way when its actor went: what the program has done of it, nobody knows. */
export function cut(key: string | undefined): SubstrateError {
  return new SubstrateError(
    "ACTOR_UNREACHABLE",
    `actor ${key ?? ""} was stopped before it had answered: a forced suspend or a stop of its program cut this request`,
  );
}

export function tooManyHeld(key: string, ofActor: number, held: number): SubstrateError {
  return new SubstrateError(
    "TOO_MANY_HELD",
    `actor ${key} isn't ready and as many requests as allowed already wait (${ofActor} for it, ${held} in all)`,
    { retryAfterMs: 1_000 },
  );
}

/** What a request hears whose time is over; the wake goes on without it. */
export function notInTime(
  key: string,
  waitedMs: number,
  phase: string,
  lastError: SubstrateError | undefined,
): SubstrateError {
  const reason = lastError === undefined ? phase : `${phase}: ${lastError.message}`;
  // TIMEOUT is a running actor's silence (504); this one is not running yet
  const code = lastError === undefined || lastError.code === "TIMEOUT" ? "NOT_READY" : lastError.code;
  return new SubstrateError(code, `actor ${key} was not ready within ${Math.round(waitedMs / 1000)} s (${reason})`, {
    cause: lastError,
    retryAfterMs: lastError?.retryAfterMs ?? defaultRetryAfterMs,
  });
}

/** Only who made the error knows whether trying again may help: without a word of his, only a person ends it. */
const retryAsSaid: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "UNKNOWN_ACTOR",
  "HELD",
  "CRASH_LOOP",
  "TEMPLATE_MISSING",
  "TEMPLATE_NOT_READY",
  "SNAPSHOT_MISSING",
  "SNAPSHOT_UNUSABLE",
]);

/** A wake that failed for good, told to those who waited for it. */
export function wakeFailed(key: string, error: SubstrateError): SubstrateError {
  const retryAfterMs = error.retryAfterMs ?? (retryAsSaid.has(error.code) ? undefined : defaultRetryAfterMs);
  return new SubstrateError(error.code, aboutWake(key, error.message), {
    cause: error,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
}

/** Names the actor once: the operator's and the atelet's messages mostly do already. */
function aboutWake(key: string, message: string): string {
  const subject = `${message.startsWith("A") ? "Actor" : "actor"} ${key}`;
  if (message.startsWith(`${subject} `)) return message;
  const why = message.startsWith(`${subject}: `) ? message.slice(subject.length + 2) : message;
  return `actor ${key} could not be woken: ${why}`;
}
