import { type Actor, type Template } from "@substrate/crds/index.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Departure } from "./actor-world.ts";
import { type AteletLink } from "./atelet-link.ts";
import { type Atelets } from "./atelets.ts";
import { bookingBytes, candidates, closedTo, type PlacementRequest, shortfall } from "./placement.ts";
import { exclusionOf, type NodeRequirements, requirementsOf } from "./scheduling.ts";

/** Whether actors are where they may be. */
export class Residence {
  readonly #atelets: Atelets;
  readonly #templates: Reflector<Template>;
  /** Actors that would leave, had they somewhere to go. */
  readonly #stranded = new Set<string>();

  constructor(atelets: Atelets, templates: Reflector<Template>) {
    this.#atelets = atelets;
    this.#templates = templates;
  }

  requirements(actor: Actor): NodeRequirements {
    return requirementsOf(this.#templates.get(actor.metadata.namespace, actor.spec.templateRef.name), actor);
  }

  /** Why it should leave its node when it sleeps; undefined when it may stay. A node that isn't well is no reason. */
  departure(actor: Actor): Departure | undefined {
    const { uid = "" } = actor.metadata;
    this.#stranded.delete(uid);
    const nodeName = actor.status?.assignment?.nodeName;
    if (nodeName === undefined) return undefined;
    const requirements = this.requirements(actor);
    const exclusion = exclusionOf(this.#atelets.traits(nodeName), requirements);
    if (exclusion?.deliberate !== true) return undefined;
    const nodes = this.#atelets.placementNodes();
    const elsewhere = nodes.some((node) => node.nodeName !== nodeName && closedTo(node, requirements) === undefined);
    if (!elsewhere) this.#stranded.add(uid);
    return { why: exclusion.text, elsewhere };
  }

  /** The best node for a trial run; `missing` says why there is none. */
  trialNode(template: Template, memoryBytes: number): { link: AteletLink | undefined; missing: string } {
    const nodes = this.#atelets.placementNodes();
    const request: PlacementRequest = {
      bookingBytes: bookingBytes(memoryBytes),
      snapshotNode: undefined,
      refusedBy: new Set(),
      requirements: requirementsOf(template),
    };
    const [best] = candidates(nodes, request);
    const link = best === undefined ? undefined : this.#atelets.get(best.nodeName);
    return { link, missing: link === undefined ? shortfall(nodes, request).message : "" };
  }

  /** Whether it would have left its node, had another one been open to it. */
  isStranded(uid: string): boolean {
    return this.#stranded.has(uid);
  }

  forget(uid: string): void {
    this.#stranded.delete(uid);
  }
}
