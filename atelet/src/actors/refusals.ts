import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorContext } from "./actor-context.ts";

/** What is said to who asks for what can't be done now; `name` is <namespace>/<name>. */
export function busy(name: string): SubstrateError {
  return new SubstrateError("OPERATION_IN_PROGRESS", `another operation is in progress for actor ${name}`, {
    retryAfterMs: 1000,
  });
}

/** Of a resume that chooses what to start from. */
export function alreadyRuns(name: string): SubstrateError {
  return new SubstrateError(
    "OPERATION_IN_PROGRESS",
    `actor ${name} is running: suspend it first, then choose what it starts from`,
  );
}

export function stopping(name: string): SubstrateError {
  return new SubstrateError(
    "SHUTTING_DOWN",
    `the node of actor ${name} is shutting down; it is not started there now`,
    { retryAfterMs: 2000 },
  );
}

export function heldMessage(name: string): string {
  return `actor ${name} is kept asleep by its spec.state Suspended; set it to OnDemand to let requests wake it`;
}

export function upgradePending(name: string): SubstrateError {
  return new SubstrateError("MOVED", `the next wake of actor ${name} is its upgrade: the operator makes it`);
}

export function requestsOpen(name: string, open: number, drainTimeoutMs: number): SubstrateError {
  return new SubstrateError(
    "REQUESTS_OPEN",
    `${open} ${open === 1 ? "request is" : "requests are"} still open for actor ${name} after ` +
      `${drainTimeoutMs / 1000} s (spec.drainTimeout of its Template); nothing was changed`,
  );
}

export function nothingToSave(name: string): SubstrateError {
  return new SubstrateError(
    "INVALID",
    `actor ${name} has no volumes, and fidelity Data saves nothing else: use Memory or Rootfs, or add a durableDir to ` +
      `spec.volumes of its Template`,
  );
}

/** Nothing is done for an actor that is being deleted, or under the grant of a session that ended. */
export function refuseIfGone({ node, name, record }: Pick<ActorContext, "node" | "name" | "record">): void {
  if (record.deleting) throw new SubstrateError("MOVED", `actor ${name} is being deleted`);
  if (record.grant.session !== node.session()) {
    throw new SubstrateError(
      "STALE_SESSION",
      `epoch ${record.grant.epoch} of actor ${name} belongs to an ended session of this node`,
    );
  }
}
