import { type Phases } from "@substrate/lib/phases.ts";
import { type Booking } from "../ledger/contract.ts";
import { shapeDigest, type SandboxShape } from "../warm/warm-program.ts";
import { type WarmSlot } from "../warm/warm-slots.ts";
import { type NodeContext, RUNTIME_OVERHEAD_BYTES } from "./node-context.ts";
import { type Program } from "./record.ts";

/** An actor that is about to sleep may make room; after that another node is looked for. */
const BOOKED_PATIENCE_MS = 1000;

/** Under which warm sandboxes wait for a program. */
export function warmKey({ templateUid, revision }: Program): string {
  return `${templateUid}/${revision}`;
}

/** Room for one start, and the warm sandbox that came with it, if one waited. */
export class Placement {
  readonly booking: Booking;
  readonly #node: NodeContext;
  #slot: WarmSlot | undefined;

  private constructor(node: NodeContext, booking: Booking, slot: WarmSlot | undefined) {
    this.#node = node;
    this.booking = booking;
    this.#slot = slot;
  }

  /** @param options.warm whether a warm sandbox is of any use. Throws NO_ROOM. */
  static async make(
    node: NodeContext,
    program: Program,
    { phases, warm }: { phases: Phases; warm: boolean },
  ): Promise<Placement> {
    const slot = warm ? node.warm.take(warmKey(program)) : undefined;
    try {
      const booking = await phases.run("place", () =>
        node.ledger.place(program.memoryBytes + RUNTIME_OVERHEAD_BYTES, {
          deadlineMs: program.wakeTimeoutMs,
          bookedMs: BOOKED_PATIENCE_MS,
          ...(slot && { warm: slot.loan }),
        }),
      );
      // Its memory may have been needed by somebody before.
      if (slot !== undefined && !booking.tookWarm) node.warm.discard(slot, { tookLoan: false });
      return new Placement(node, booking, booking.tookWarm ? slot : undefined);
    } catch (error) {
      if (slot !== undefined) node.warm.discard(slot, { tookLoan: false });
      throw error;
    }
  }

  /** Creates a sandbox if none waited, in memory that is booked already. On failure there is none. */
  async prepare(shape: SandboxShape): Promise<void> {
    this.#slot ??= await this.#node.warm.create(shape);
  }

  /** The warm sandbox, once, if it fits what is to be restored. */
  slot(shape: SandboxShape): WarmSlot | undefined {
    if (this.#slot?.digest !== shapeDigest(shape)) return undefined;
    const slot = this.#slot;
    this.#slot = undefined;
    return slot;
  }

  /** The start is over: what it had no use for goes. */
  end(): void {
    if (this.#slot !== undefined) this.#node.warm.discard(this.#slot, { tookLoan: true });
    this.#slot = undefined;
  }
}
