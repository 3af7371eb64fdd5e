import { createHash } from "node:crypto";
import { type Actor, type EnvVar, type Template } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type StartFrom } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import {
  type ActorReport,
  type Environment,
  type Origin,
  type Program,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Standing } from "./actor-world.ts";
import { type Choice } from "./choices.ts";
import { type EnvOwner, type Environments, mergeEnv } from "./environment.ts";
import { isUnstartedFork, type Origins } from "./origins.ts";
import { buildProgram } from "./program.ts";
import { notReady, requireTemplate } from "./programs.ts";
import { type Revisions, type StoredRevision } from "./revisions.ts";
import { isDamaged, type Tie, tieOf } from "./ties.ts";

/** What a node is told of an actor beside its grant. */
export interface ActorPlan {
  program: Program;
  /** Undefined: what the node has of an earlier assignment stays. */
  environment: Environment | undefined;
  /** Where an actor without a generation begins. */
  origin: Origin | undefined;
  /** Local wakes wait for the operator, because its next start is to be another revision's. */
  upgradePending: boolean;
}

/** How an actor is to be started. */
export interface StartPlan extends ActorPlan {
  startFrom: StartFrom | undefined;
  upgrade: Upgrade | undefined;
}

/** A generation whose state is to be kept as a tag before a program of another revision takes over. */
export interface Upgrade {
  /** The present revision. */
  from: string;
  generation: number;
  /** To be assigned while the tag is made. */
  present: ActorPlan;
}

/** Which revision an actor's next start is of. */
export interface Decision {
  revision: string;
  tie: Tie;
  startFrom: StartFrom | undefined;
  /** Why it stays on its own although there is a newer one. */
  refused: string | undefined;
}

export interface PlansOptions {
  templates: Reflector<Template>;
  revisions: Revisions;
  origins: Origins;
  environments: Environments;
}

const boot: StartFrom = { from: { $case: "boot", value: true } };

/** What an actor is run with, read anew for each assignment. */
export class Plans {
  readonly #options: PlansOptions;

  constructor(options: PlansOptions) {
    this.#options = options;
  }

  /**
   * Throws what `decide` and `Environments.resolve` throw, and for an actor without a generation what `Origins.of` does.
   * @param report of the node that holds it
   */
  async start(actor: Actor, report: ActorReport | undefined, choice: Choice): Promise<StartPlan> {
    const template = this.#template(actor);
    const begins = choice.kind === "generation" ? undefined : await this.#options.origins.of(actor, template);
    const decision = await this.decide(actor, report, choice, begins?.revision);
    const { revision, startFrom, tie } = decision;
    const plan = await this.#plan(actor, template, revision, begins?.origin);
    const isSaved = tie.kind === "memory" || tie.kind === "files";
    if (!isSaved || tie.revision === revision || !isOwnState(choice)) {
      return { ...plan, startFrom, upgrade: undefined };
    }
    const present = { ...(await this.#plan(actor, template, tie.revision, undefined)), upgradePending: true };
    return { ...plan, startFrom, upgrade: { from: tie.revision, generation: tie.generation, present } };
  }

  /** Of one that runs, or sleeps on as it is. A Secret that is gone meanwhile doesn't stand in its way. */
  async present(actor: Actor, revision: string): Promise<ActorPlan> {
    return this.#plan(actor, this.#template(actor), revision, await this.#source(actor), true);
  }

  /** Of a fork that was never saved: should it crash, it begins from there again. A tag that is gone is needed no more. */
  async #source(actor: Actor): Promise<Origin | undefined> {
    if (!isUnstartedFork(actor)) return undefined;
    try {
      return (await this.#options.origins.of(actor, this.#template(actor)))?.origin;
    } catch (error) {
      if (error instanceof SubstrateError) return undefined;
      throw error;
    }
  }

  /**
   * Throws TEMPLATE_MISSING, TEMPLATE_NOT_READY, NOT_READY when its own revision is lost, and UPGRADE_REFUSED for a
   * cold start that a person asks for where the newest revision lacks a volume.
   * @param beginsWith the revision of the snapshot that an actor without a generation begins from
   */
  async decide(
    actor: Actor,
    report: ActorReport | undefined,
    choice: Choice,
    beginsWith: string | undefined,
  ): Promise<Decision> {
    const template = this.#template(actor);
    const tie = tieOf(actor, report);
    if (tie.kind === "running") return { revision: tie.revision, tie, startFrom: undefined, refused: undefined };
    if (choice.kind === "generation" || choice.kind === "tag") {
      return { revision: choice.revision, tie, startFrom: choice.startFrom, refused: undefined };
    }
    const startFrom = choice.kind === "boot" ? boot : undefined;
    if (beginsWith !== undefined && choice.kind === "newest") {
      return { revision: beginsWith, tie, startFrom, refused: undefined };
    }
    const own = tie.revision;
    const newest = template.status?.phase === "Ready" ? template.status.revision : undefined;
    const isBound = tie.kind === "memory" || tie.kind === "unsaved";
    // a new program begins without that state: not by itself, while it is damaged
    const isKept = template.spec.upgrade === "Manual" || isDamaged(report);
    const stays = isBound && choice.kind === "newest" && isKept;
    const wanted = stays ? own : newest;
    const revision = wanted ?? own;
    if (revision === undefined) throw notReady(actor, template);
    if (own === undefined || revision === own) return { revision, tie, startFrom, refused: undefined };
    const refused = await this.#missingVolumes(template, own, revision);
    if (refused !== undefined && choice.kind === "boot") {
      throw new SubstrateError("UPGRADE_REFUSED", `Actor ${keyOf(actor)}: ${refused}`);
    }
    if (refused !== undefined) return { revision: own, tie, startFrom, refused };
    // a memory image, its own or that of a tag, fits no other program: it starts cold, with its volumes
    return { revision, tie, startFrom: tie.kind === "files" ? startFrom : boot, refused: undefined };
  }

  /** The variables of a program of this revision, unresolved. */
  async env(actor: Actor, revision: string): Promise<EnvVar[]> {
    const { part } = await this.#options.revisions.load(this.#template(actor), revision);
    return mergeEnv(part.env, actor.spec.env);
  }

  envOwner(actor: Actor): EnvOwner {
    const { namespace = "" } = actor.metadata;
    return { about: `Actor ${keyOf(actor)}`, namespace, templateUid: this.#template(actor).metadata.uid ?? "" };
  }

  /**
   * Of an actor that goes on with `present` for now: the Template's newest revision, if that is another one, or why the
   * actor will not take it.
   */
  async waiting(
    actor: Actor,
    present: string,
    { kind }: Tie,
  ): Promise<Pick<Standing, "upgradeRefused" | "upgradeWaits">> {
    const template = this.#template(actor);
    const { spec, status } = template;
    const revision = status?.phase === "Ready" ? status.revision : undefined;
    if (revision === undefined || revision === present) return {};
    const savesFiles = kind === "running" && spec.snapshots.onSuspend !== "Memory";
    const byItself = spec.upgrade === "OnNextResume" || savesFiles;
    const refused = byItself ? await this.#missingVolumes(template, present, revision) : undefined;
    return refused === undefined ? { upgradeWaits: { revision, byItself } } : { upgradeRefused: refused };
  }

  /** What runs a revision of it, with the Template's policies of now. */
  async program(actor: Actor, revision: string): Promise<Program> {
    const template = this.#template(actor);
    const { part, imageDigest } = await this.#options.revisions.load(template, revision);
    return buildProgram(template, part, revision, imageDigest);
  }

  #template(actor: Actor): Template {
    const { namespace } = actor.metadata;
    return requireTemplate(actor, this.#options.templates.get(namespace, actor.spec.templateRef.name));
  }

  async #plan(
    actor: Actor,
    template: Template,
    revision: string,
    origin: Origin | undefined,
    lenient = false,
  ): Promise<ActorPlan> {
    const { part, imageDigest } = await this.#options.revisions.load(template, revision);
    const program = buildProgram(template, part, revision, imageDigest);
    const environment = await this.#environment(actor, mergeEnv(part.env, actor.spec.env), lenient);
    return { program, environment, origin, upgradePending: false };
  }

  async #environment(actor: Actor, env: EnvVar[], lenient: boolean): Promise<Environment | undefined> {
    try {
      return await this.#options.environments.resolve(this.envOwner(actor), env);
    } catch (error) {
      if (lenient && error instanceof SubstrateError && error.code === "SECRET_MISSING") return undefined;
      throw error;
    }
  }

  async #missingVolumes(template: Template, own: string, newest: string): Promise<string | undefined> {
    const { revisions } = this.#options;
    const names = ({ part }: StoredRevision): string[] => part.volumeMounts.map(({ name }) => name);
    const [before, after] = await Promise.all([revisions.load(template, own), revisions.load(template, newest)]);
    const kept = new Set(names(after));
    const missing = names(before).filter((name) => !kept.has(name));
    if (missing.length === 0) return undefined;
    const which = `volume${missing.length === 1 ? "" : "s"} ${missing.map((name) => `"${name}"`).join(", ")}`;
    const where = `Template ${template.metadata.namespace}/${template.metadata.name}`;
    return `revision ${newest} of ${where} lacks ${which}, which the actor has data in: add it to the Template again`;
  }
}

/** What is left behind is history that a person chose to leave; only a new program's start needs a way back. */
function isOwnState(choice: Choice): boolean {
  return choice.kind === "newest" || choice.kind === "boot";
}

/** Tells whether a node was told the same; of secrets it has only the environment's digest. */
export function planDigest(program: Program, envDigest: string | undefined, upgradePending: boolean): string {
  const text = JSON.stringify([program, envDigest ?? "", upgradePending], (_, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  return createHash("sha256").update(text).digest("hex");
}
