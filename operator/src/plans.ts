import { type Actor, type Template } from "@substrate/crds/index.ts";
import { type Environment, type Origin, type Program } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Origins } from "./origins.ts";
import { programOf } from "./programs.ts";
import { type Revisions } from "./revisions.ts";

/** What a node is told of an actor beside its grant. */
export interface ActorPlan {
  program: Program;
  environment: Environment | undefined;
  /** Where an actor without a generation begins. */
  origin: Origin | undefined;
  /** Local wakes wait for the operator, because its next start is to be another revision's. */
  upgradePending: boolean;
}

export interface PlansOptions {
  templates: Reflector<Template>;
  revisions: Revisions;
  origins: Origins;
}

/** What an actor is run with, read anew for each assignment. */
export class Plans {
  readonly #options: PlansOptions;

  constructor(options: PlansOptions) {
    this.#options = options;
  }

  /**
   * Throws what `programOf` and `Origins.of` throw.
   * @param running its program runs already: it stays on its revision, and what it began from may be gone
   */
  async of(actor: Actor, running = false): Promise<ActorPlan> {
    const { origins, revisions, templates } = this.#options;
    const template = templates.get(actor.metadata.namespace, actor.spec.templateRef.name);
    const begins = running ? undefined : await origins.of(actor, template);
    const revision = running ? actor.status?.revision : begins?.revision;
    const program = await programOf(actor, template, revisions, revision);
    return { program, environment: undefined, origin: begins?.origin, upgradePending: false };
  }
}
