import { type SleepingImage } from "./network.ts";

/** More would only hold on to connections whose peers have long given up. */
export const MAX_PARKED = 4096;

export interface Parked extends SleepingImage {
  nodeAddress: string;
}

/** What the kernel keeps of a parked address beside it: whose it is, behind which address of the pod, and since when. */
export function markOf(image: SleepingImage, podAddress: string, sinceMs: number): string {
  return [image.actor, image.generation, image.epoch, podAddress, sinceMs].join(" ");
}

/** @returns undefined for a mark that is not one of ours. */
export function readMark(mark: string): (SleepingImage & { podAddress: string; sinceMs: number }) | undefined {
  const match = /^(\S+) (\d+) (\d+) (\S+) (\d+)$/.exec(mark);
  const [, actor, generation, epoch, podAddress, sinceMs] = match ?? [];
  if (actor === undefined || podAddress === undefined) return undefined;
  return { actor, generation: Number(generation), epoch: Number(epoch), podAddress, sinceMs: Number(sinceMs) };
}

/** Addresses of sleeping actors, oldest first: at most one of each, and not too many. */
export class ParkedAddresses {
  readonly #most: number;
  readonly #byActor = new Map<string, Parked>();

  constructor(most: number) {
    this.#most = most;
  }

  get count(): number {
    return this.#byActor.size;
  }

  addresses(): string[] {
    return [...this.#byActor.values()].map(({ nodeAddress }) => nodeAddress);
  }

  has(nodeAddress: string): boolean {
    return [...this.#byActor.values()].some((parked) => parked.nodeAddress === nodeAddress);
  }

  /** @returns what must be given up for it: another one of this actor, and the oldest if there are too many. */
  add(parked: Parked): Parked[] {
    const before = this.take(parked.actor);
    this.#byActor.set(parked.actor, parked);
    const surplus = this.#byActor.size > this.#most ? this.#byActor.values().next().value : undefined;
    if (surplus !== undefined) this.#byActor.delete(surplus.actor);
    return [before, surplus].filter((given) => given !== undefined);
  }

  /** Only what was parked with this very image. */
  takeFor(image: SleepingImage): Parked | undefined {
    const parked = this.#byActor.get(image.actor);
    const same = parked?.generation === image.generation && parked.epoch === image.epoch;
    return same ? this.take(image.actor) : undefined;
  }

  take(actor: string): Parked | undefined {
    const parked = this.#byActor.get(actor);
    this.#byActor.delete(actor);
    return parked;
  }

  /** Of nobody but these actors. @returns the others', which are forgotten. */
  keepOnly(actors: ReadonlySet<string>): Parked[] {
    const others = [...this.#byActor.values()].filter(({ actor }) => !actors.has(actor));
    for (const { actor } of others) this.#byActor.delete(actor);
    return others;
  }
}
