import { type Actor, type EnvVar } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorReport, ActorState, type Program } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { LRUCache } from "lru-cache";
import { type Standing } from "./actor-world.ts";
import { type Assignments } from "./assignments.ts";
import { type AteletLink } from "./atelet-link.ts";
import { newest } from "./choices.ts";
import { type EnvOwner, type Environments, hasSecrets, missingSecretRetryMs } from "./environment.ts";
import { troubleOf } from "./hold.ts";
import { type Decision, planDigest, type Plans } from "./plans.ts";
import { isAwake } from "./ties.ts";

/** Secrets are not watched, only looked at: so often, and not more often however busy the actor is. */
const lookEveryMs = 60_000;
const lookAgainMs = 2_000;
/** Actors whose Secrets are remembered, by a digest. */
const remembered = 16_384;

interface Look {
  env: string;
  atMs: number;
  standing: Pick<Standing, "envDigest" | "envTrouble" | "recheckAfterMs">;
}

export interface BriefingsOptions {
  plans: Plans;
  environments: Environments;
  assignments: Assignments;
}

/**
 * Keeps what the node of an actor was told of it up to date: the Template's policies, its environment, whether another
 * revision waits for it. A node starts actors by itself, with what it was told last.
 */
export class Briefings {
  readonly #options: BriefingsOptions;
  readonly #looks = new LRUCache<string, Look>({ max: remembered });
  /** Of those that another revision waits for: at the environment of their present one. */
  readonly #presentLooks = new LRUCache<string, Look>({ max: remembered });

  constructor(options: BriefingsOptions) {
    this.#options = options;
  }

  /** Undefined when it cannot be said, because its Template or its revision is not there: that is told otherwise. */
  async standing(actor: Actor, report: ActorReport | undefined): Promise<Standing | undefined> {
    const { plans } = this.#options;
    let decision: Decision;
    let env: EnvVar[];
    let owner: EnvOwner;
    let presentEnv: EnvVar[] | undefined;
    let waiting: Pick<Standing, "upgradeRefused" | "upgradeWaits"> = {};
    try {
      decision = await plans.decide(actor, report, newest, undefined);
      env = await plans.env(actor, decision.revision);
      owner = plans.envOwner(actor);
      const present = presentOf(decision, report);
      if (present !== undefined) presentEnv = present === decision.revision ? env : await plans.env(actor, present);
      const stays = decision.tie.kind !== "none" && decision.tie.revision === decision.revision;
      if (stays && decision.refused === undefined)
        waiting = await plans.waiting(actor, decision.revision, decision.tie);
    } catch (error) {
      if (error instanceof SubstrateError) return undefined;
      throw error;
    }
    const { refused, revision } = decision;
    const present = presentOf(decision, report);
    const { uid = "" } = actor.metadata;
    const look = await this.#look(this.#looks, uid, owner, env);
    const presentLook =
      presentEnv === undefined || presentEnv === env
        ? look
        : await this.#look(this.#presentLooks, uid, owner, presentEnv);
    const { envDigest: presentEnvDigest, recheckAfterMs } = presentLook;
    return {
      ...(recheckAfterMs === undefined ? {} : { recheckAfterMs }),
      ...look,
      ...waiting,
      ...(refused === undefined ? {} : { upgradeRefused: refused }),
      ...(present === undefined ? {} : { presentRevision: present }),
      ...(presentEnvDigest === undefined ? {} : { presentEnvDigest }),
      ...(present === undefined || present === revision ? {} : { upgradeTo: revision }),
    };
  }

  /** Tells the node what has changed since it was told last. Throws SubstrateError when it refuses. */
  async update(actor: Actor, link: AteletLink, report: ActorReport, standing: Standing): Promise<void> {
    const { assignments, plans } = this.#options;
    const { uid = "" } = actor.metadata;
    if (isInTransition(report)) return;
    // before its first generation it needs what it begins from, too: the next wake's to say, unless it runs
    if (report.generations.length === 0 && !isAwake(report)) return;
    const { presentEnvDigest, presentRevision, upgradeTo } = standing;
    if (presentRevision === undefined) return;
    const upgradePending = upgradeTo !== undefined;
    const program = await plans.program(actor, presentRevision);
    const wanted = planDigest(program, presentEnvDigest, upgradePending);
    const told = assignments.told(uid);
    if (told === wanted) return;
    const isKnown = report.revision === presentRevision && hasLimitsOf(report, program);
    if (told === undefined && !upgradePending && isKnown) {
      // by an earlier operator
      assignments.assumeTold(uid, wanted);
      return;
    }
    await assignments.assign(actor, link, { ...(await plans.present(actor, presentRevision)), upgradePending });
  }

  forget(uid: string): void {
    this.#looks.delete(uid);
    this.#presentLooks.delete(uid);
  }

  async #look(looks: LRUCache<string, Look>, uid: string, owner: EnvOwner, env: EnvVar[]): Promise<Look["standing"]> {
    const named = JSON.stringify(env);
    const known = looks.get(uid);
    const nowMs = performance.now();
    if (known?.env === named && nowMs - known.atMs < lookAgainMs) return known.standing;
    const standing = await this.#resolve(owner, env);
    looks.set(uid, { env: named, atMs: nowMs, standing });
    return standing;
  }

  async #resolve(owner: EnvOwner, env: EnvVar[]): Promise<Look["standing"]> {
    try {
      const { digest } = await this.#options.environments.resolve(owner, env);
      return { envDigest: digest, ...(hasSecrets(env) ? { recheckAfterMs: lookEveryMs } : {}) };
    } catch (error) {
      if (!(error instanceof SubstrateError)) throw error;
      return { envTrouble: troubleOf(error), recheckAfterMs: missingSecretRetryMs };
    }
  }
}

/** Of what runs, or would be started if there were no other; undefined for what has never run. */
function presentOf({ tie }: Decision, report: ActorReport | undefined): string | undefined {
  const present = tie.kind === "none" ? report?.revision : tie.revision;
  return present === "" ? undefined : present;
}

/** Whether the node measures its volumes by the Template's limits of now. */
function hasLimitsOf({ volumes }: ActorReport, { volumeMounts }: Program): boolean {
  const wanted = new Map(volumeMounts.map(({ name, sizeLimitBytes }) => [name, sizeLimitBytes]));
  return volumes.every(({ name, limitBytes }) => (wanted.get(name) ?? limitBytes) === limitBytes);
}

function isInTransition({ state }: ActorReport): boolean {
  return state === ActorState.ACTOR_STATE_RESUMING || state === ActorState.ACTOR_STATE_SUSPENDING;
}
