import { type Phases } from "@substrate/lib/phases.ts";
import { type UnpackedImage } from "../images/images.ts";
import { type ActorContext } from "./actor-context.ts";
import { warmShape } from "./launcher.ts";
import { type Placement } from "./placement.ts";
import { type Generation } from "./record.ts";

export interface AheadOptions extends ActorContext {
  phases: Phases;
  placement: Placement;
}

/**
 * What a start does while its snapshot is being fetched: the image is brought here, and a sandbox is created into which
 * the memory is restored then. What fails of it is tried again, or done without, when its turn comes.
 */
export class Ahead {
  readonly #options: AheadOptions;
  #doing: Promise<void> = Promise.resolve();

  constructor(options: AheadOptions) {
    this.#options = options;
  }

  /** A download of this generation has begun. */
  begin(source: Generation): void {
    const { log } = this.#options;
    this.#doing = this.#doing
      .then(() => this.#prepare(source))
      .catch((error: unknown) => {
        log.info("nothing could be prepared while a snapshot was fetched", { error });
      });
  }

  /** The image. A restore needs the very one that the snapshot was made from, also when the tag has moved since. */
  image(digest: string | undefined): Promise<UnpackedImage> {
    return this.#options.phases.run("image", async () => {
      await this.#doing;
      return this.#image(digest);
    });
  }

  /** Resolves when nothing is under way any more. */
  async ended(): Promise<void> {
    await this.#doing;
  }

  async #prepare({ imageDigest, fidelity }: Generation): Promise<void> {
    const { node, record, placement } = this.#options;
    const image = await this.#image(imageDigest);
    if (fidelity !== "Memory") return;
    await node.startPlaces.run(
      () => undefined,
      () => placement.prepare(warmShape(record.program, image)),
    );
  }

  async #image(digest: string | undefined): Promise<UnpackedImage> {
    const { node, record } = this.#options;
    const local = digest === undefined ? undefined : await node.images.local(digest);
    return local ?? node.images.ensure(pinnedReference(record.program.image, digest));
  }
}

function pinnedReference(reference: string, digest: string | undefined): string {
  if (digest === undefined || reference.includes("@")) return reference;
  return `${reference}@${digest}`;
}
