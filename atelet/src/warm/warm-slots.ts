import { randomBytes } from "node:crypto";
import { type Logger } from "@substrate/lib/log.ts";
import { type Cgroups } from "../cgroups/cgroups.ts";
import { type Ledger, type WarmLoan } from "../ledger/contract.ts";
import { type ActorNetwork, type Slot } from "../network/network.ts";
import { type SandboxRuntime } from "../sandbox/sandbox.ts";
import { Demand } from "./demand.ts";
import { type SlotFolder, type SlotFolders } from "./slot-folder.ts";
import { type WarmOutcome } from "./warm-metrics.ts";
import { shapeDigest, type SandboxShape, type WarmProgram } from "./warm-program.ts";

/** A created sandbox takes 16 to 17 MiB; what it takes more while it waits is not known to anybody but its limit. */
export const WARM_BYTES = 24 * 2 ** 20;
/** So long nothing was under way on the node before a sandbox is made that nobody waits for. */
const QUIET_MS = 150;
const LOOK_EVERY_MS = 15_000;

/** A created sandbox without a program. */
export interface WarmSlot {
  id: string;
  digest: string;
  folder: SlotFolder;
  network: Slot;
  loan: WarmLoan;
}

/** Instead of a loan: the memory is part of a booking. */
const booked: WarmLoan = { bytes: 0, askedBack: false, return: () => undefined };

export interface WarmSlotsOptions {
  runtime: SandboxRuntime;
  network: ActorNetwork;
  cgroups: Cgroups;
  ledger: Pick<Ledger, "warm">;
  folders: SlotFolders;
  /** Of all programs together; 0: none are made. */
  most: number;
  /** Resolves when nothing urgent has been under way for so long. */
  quiet: (forMs: number, signal: AbortSignal) => Promise<void>;
  /** Counts what becomes of them. */
  outcome: (outcome: WarmOutcome) => void;
  log: Logger;
  signal: AbortSignal;
}

/**
 * Sandboxes that were created before it is known for which actor: a wake restores into one and saves the 55 ms of the
 * creation. Made when nothing is under way, for programs that were started lately, in memory that nobody else wants.
 */
export class WarmSlots {
  readonly #options: WarmSlotsOptions;
  readonly #demand = new Demand();
  readonly #shapes = new Map<string, SandboxShape>();
  /** By program. */
  readonly #ready = new Map<string, WarmSlot[]>();
  readonly #removing = new Set<Promise<void>>();
  #filling: Promise<void> | undefined;
  #again = false;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: WarmSlotsOptions) {
    this.#options = options;
  }

  get count(): number {
    return [...this.#ready.values()].reduce((sum, slots) => sum + slots.length, 0);
  }

  /** Of what sandboxes wait, or may be made for. */
  rootfsDirs(): string[] {
    return [...this.#shapes.values()].map(({ rootfsDir }) => rootfsDir);
  }

  /** An actor of this program was started: others of it may be soon. */
  started({ key, shape }: WarmProgram): void {
    if (this.#options.most === 0 || this.#closed) return;
    this.#shapes.set(key, shape);
    this.#demand.started(key, performance.now());
    this.fill();
  }

  /** A newer revision has taken its place for an actor; others that are still started of it say so again. */
  forget(key: string): void {
    this.#shapes.delete(key);
    this.fill();
  }

  /** The caller's from now on: to be restored into, or given to `discard`. While its loan is asked back it is removed. */
  take(key: string): WarmSlot | undefined {
    const slots = this.#ready.get(key) ?? [];
    const slot = slots.findLast(({ loan }) => !loan.askedBack);
    if (slot === undefined) {
      if (this.#options.most > 0) this.#options.outcome("missed");
      return undefined;
    }
    this.#ready.set(
      key,
      slots.filter((other) => other !== slot),
    );
    this.#options.outcome("taken");
    return slot;
  }

  /**
   * One for a start under way, whose booking has its memory: as if it had been taken. undefined where none are made. On
   * failure nothing is left of it.
   */
  async create(shape: SandboxShape): Promise<WarmSlot | undefined> {
    const { most, network } = this.#options;
    if (most === 0 || this.#closed) return undefined;
    return this.#create(shape, await network.acquire(), booked);
  }

  /** Removes, in the background, one that was taken and not used; `tookLoan` says that a booking has its loan. */
  discard(slot: WarmSlot, { tookLoan }: { tookLoan: boolean }): void {
    this.#options.outcome("unfit");
    // Else it is removed already.
    if (tookLoan || !slot.loan.askedBack) void this.#remove(slot, { tookLoan });
  }

  /** In the background, when nothing else is under way. */
  fill(): void {
    this.#again = true;
    if (this.#filling !== undefined || this.#closed) return;
    this.#filling = this.#fill().finally(() => {
      this.#filling = undefined;
    });
  }

  /** Removes all; no more are made. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#filling;
    for (const slots of this.#ready.values()) for (const slot of slots.splice(0)) void this.#remove(slot);
    await Promise.all(this.#removing);
  }

  async #fill(): Promise<void> {
    const { signal, quiet, log, most } = this.#options;
    try {
      while (this.#again && !this.#closed) {
        this.#again = false;
        this.#demand.prune(performance.now());
        const wanted = this.#demand.wanted(performance.now(), most);
        await this.#removeSurplus(wanted);
        for (const [key, count] of wanted) {
          while (this.#shapes.has(key) && (this.#ready.get(key)?.length ?? 0) < count) {
            await quiet(QUIET_MS, signal);
            if (!(await this.#make(key))) break;
          }
        }
      }
    } catch (error) {
      if (!signal.aborted) log.warn("a warm sandbox could not be made; wakes make their own meanwhile", { error });
    } finally {
      this.#lookLater();
    }
  }

  /** Programs go out of use by themselves, memory may be free again, and what waits may die. */
  #lookLater(): void {
    clearTimeout(this.#timer);
    if (this.#closed || (!this.#demand.prune(performance.now()) && this.count === 0)) return;
    this.#timer = setTimeout(() => {
      this.fill();
    }, LOOK_EVERY_MS).unref();
  }

  async #removeSurplus(wanted: ReadonlyMap<string, number>): Promise<void> {
    for (const [key, slots] of this.#ready) {
      const shape = this.#shapes.get(key);
      const digest = shape && shapeDigest(shape);
      const keep: WarmSlot[] = [];
      for (const slot of [...slots]) {
        const fits = slot.digest === digest && keep.length < (wanted.get(key) ?? 0);
        if (fits && (await this.#options.runtime.alive(slot.id))) keep.push(slot);
        else this.#giveUp(key, slot);
      }
      if (slots.length === 0) this.#ready.delete(key);
    }
  }

  /** @returns false if there is no memory for it. */
  async #make(key: string): Promise<boolean> {
    const { ledger, network, outcome, log } = this.#options;
    const shape = this.#shapes.get(key);
    if (shape === undefined || this.#closed) return false;
    const waiting: { slot?: WarmSlot } = {};
    const loan = ledger.warm(WARM_BYTES, () => {
      // One that is still being made is looked at when it is.
      if (waiting.slot !== undefined) this.#giveUp(key, waiting.slot);
    });
    if (loan === undefined) return false;
    let place: Slot;
    try {
      place = await network.acquire();
    } catch (error) {
      loan.return();
      throw error;
    }
    let made: WarmSlot;
    try {
      made = await this.#create(shape, place, loan);
    } catch (error) {
      // Its image may be gone: not again before it was started once more.
      this.#shapes.delete(key);
      throw error;
    }
    if (loan.askedBack || this.#isClosed()) {
      await this.#remove(made);
      return false;
    }
    waiting.slot = made;
    this.#ready.set(key, [...(this.#ready.get(key) ?? []), made]);
    outcome("made");
    log.debug("warm sandbox made", { sandbox: made.id, program: key });
    return true;
  }

  /** On failure nothing is left of it, and its loan is returned. */
  async #create(shape: SandboxShape, place: Slot, loan: WarmLoan): Promise<WarmSlot> {
    const { runtime, network, cgroups, folders } = this.#options;
    const id = randomBytes(16).toString("hex");
    const made = {
      id,
      digest: shapeDigest(shape),
      folder: folders.of(id, shape.destinations.length),
      network: place,
      loan,
    };
    try {
      await folders.create(id, shape.destinations.length);
      const [cgroupPath] = await Promise.all([cgroups.create(id), network.putAddress(place)]);
      const { destinations, ...of } = shape;
      await runtime.create({
        ...of,
        id,
        bundleDir: made.folder.bundle,
        env: [],
        hostname: "warm",
        netnsPath: place.netnsPath,
        identityDir: made.folder.identity,
        volumes: destinations.map((destination, index) => ({ source: made.folder.volumes[index] ?? "", destination })),
        cgroupPath,
        stdoutPath: made.folder.output,
        stderrPath: made.folder.output,
      });
      return made;
    } catch (error) {
      await this.#remove(made);
      throw error;
    }
  }

  #isClosed(): boolean {
    return this.#closed;
  }

  #giveUp(key: string, slot: WarmSlot): void {
    const slots = this.#ready.get(key) ?? [];
    this.#ready.set(
      key,
      slots.filter((other) => other !== slot),
    );
    this.#options.outcome("given-up");
    void this.#remove(slot);
  }

  /** A failure is logged: what is left goes at the next start. */
  #remove(slot: WarmSlot, { tookLoan } = { tookLoan: false }): Promise<void> {
    const { runtime, network, cgroups, folders, log } = this.#options;
    const removed = (async () => {
      try {
        await runtime.delete(slot.id);
        if (!tookLoan) slot.loan.return();
        await cgroups.remove(slot.id);
        await folders.remove(slot.id);
        await network.release(slot.network);
      } catch (error) {
        log.error("a warm sandbox could not be removed; the next start of the atelet does it", {
          sandbox: slot.id,
          error,
        });
      }
    })();
    this.#removing.add(removed);
    void removed.then(() => this.#removing.delete(removed));
    return removed;
  }
}
