import type { Actor, LastOperation } from "@substrate/crds/actor.ts";
import { operationOf } from "./actors.ts";
import { CommandFailure } from "./failure.ts";
import { withoutSubject } from "./subject.ts";

export interface Started {
  readonly id: string;
  /** When the operator accepted it, by its clock, in milliseconds. */
  readonly acceptedUnixMs: number;
  /** As it was before: what the operation has changed is seen against it. */
  readonly before: Actor;
  readonly startedAt: number;
}

export interface Finished {
  readonly operationId: string;
  readonly type: "Suspend" | "Resume";
  readonly result: "Succeeded";
  /** From the call to the news of its end. */
  readonly durationMs: number;
  readonly actor: Actor;
}

export type Verb = "suspend" | "resume";

export interface Asked {
  readonly verb: Verb;
  /** A suspend that has ended only when its generation is in the store. */
  readonly sync: boolean;
}

/** "unseen": the status shows neither the operation nor another one that runs. */
export type Step = "ended" | "goes on" | "unseen";

/** What an actor's statuses, one after the other, say of one operation. */
export class Follower {
  readonly #key: string;
  readonly #started: Started;
  readonly #options: Asked;
  /** The oldest generation that holds what a suspend has saved; known once it is over on the node. */
  #saved: number | undefined;
  #last: Actor | undefined;

  constructor(key: string, started: Started, options: Asked) {
    this.#key = key;
    this.#started = started;
    this.#options = options;
  }

  /** @throws {CommandFailure} when the operation failed */
  see(actor: Actor): Step {
    this.#last = actor;
    const operation = operationOf(actor, this.#started.id);
    if (operation?.result === "Running") return "goes on";
    if (operation?.result === "Failed") throw this.#failed(operation);
    if (operation !== undefined || this.#wasOvertaken(actor)) this.#saved ??= actor.status?.generation ?? 0;
    if (this.#saved !== undefined)
      return !this.#options.sync || this.#isStored(actor, this.#saved) ? "ended" : "goes on";
    // ours is shown after it
    if (actor.status?.lastOperation?.result === "Running") return "goes on";
    return "unseen";
  }

  finished(actor: Actor): Finished {
    return {
      operationId: this.#started.id,
      type: this.#options.verb === "suspend" ? "Suspend" : "Resume",
      result: "Succeeded",
      durationMs: Math.round(performance.now() - this.#started.startedAt),
      actor,
    };
  }

  /** What to say when the operation has been unseen for too long. */
  lost(): CommandFailure {
    const { verb } = this.#options;
    const [namespace = "", name = ""] = this.#key.split("/");
    const look = `see "kubectl ate get ${name} -n ${namespace}"`;
    const now = this.#last ?? this.#started.before;
    if (this.#isLater(now)) {
      return new CommandFailure(
        "operationFailed",
        `${verb} of actor ${this.#key} was followed by another operation, and how it ended can't be seen any more`,
        look,
      );
    }
    return new CommandFailure(
      "unavailable",
      `${verb} of actor ${this.#key} was accepted as operation ${this.#started.id}, but it does not appear: the operator was probably restarted before it began`,
      `${look}, then run the command again`,
    );
  }

  /**
   * A later operation stands in the status, and ours has left its mark: it has ended, because an actor has one at a
   * time. An earlier one (a request's wake) may be recorded late: by itself another id says nothing.
   */
  #wasOvertaken(actor: Actor): boolean {
    if (!this.#isLater(actor)) return false;
    if (this.#options.verb === "resume") return actor.status?.state === "ACTOR_STATE_RUNNING";
    return (actor.status?.generation ?? 0) > (this.#started.before.status?.generation ?? 0);
  }

  #isLater(actor: Actor): boolean {
    const last = actor.status?.lastOperation;
    if (last === undefined || last.id === this.#started.before.status?.lastOperation?.id) return false;
    return Date.parse(last.startTime) > this.#started.acceptedUnixMs;
  }

  /** @throws {CommandFailure} when it can never be */
  #isStored(actor: Actor, saved: number): boolean {
    if (saved === 0) return true;
    const entries = (actor.status?.snapshots ?? []).filter(({ generation }) => generation >= saved);
    // a node that has just been told of the actor lists none yet
    if (entries.length === 0) return false;
    if (entries.some(({ storageState }) => storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED")) return true;
    if (entries.some(({ storageState }) => storageState === "SNAPSHOT_STORAGE_STATE_PENDING")) return false;
    const why = actor.status?.conditions?.find(({ type }) => type === "Durable")?.message ?? "it is lost";
    throw new CommandFailure("operationFailed", `suspend of actor ${this.#key} failed: ${why}`);
  }

  #failed(operation: LastOperation): CommandFailure {
    const reason = operation.reason === undefined ? "" : ` (${operation.reason})`;
    return new CommandFailure(
      "operationFailed",
      `${this.#options.verb} of actor ${this.#key} failed: ${withoutSubject(this.#key, operation.message ?? "no message")}${reason}`,
      operation.reason === "REQUESTS_OPEN" ? "wait for its requests, or cut them with --force" : undefined,
    );
  }
}
