import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { type Phases } from "@substrate/lib/phases.ts";
import { type UnpackedImage } from "../images/images.ts";
import { type SleepingImage } from "../network/network.ts";
import { UsageWatch, type VolumeUsage, withLimits } from "../volumes/usage.ts";
import { type ActorContext } from "./actor-context.ts";
import { BackgroundLoad } from "./background-load.ts";
import { type Beginning } from "./beginning.ts";
import { ending, endingMeanwhile } from "./ending.ts";
import { EnvironmentFile } from "./environment.ts";
import { Launcher, warmShape } from "./launcher.ts";
import { RUNTIME_OVERHEAD_BYTES } from "./node-context.ts";
import { outputSize } from "./output-log.ts";
import { type Placement, warmKey } from "./placement.ts";
import { type ActorRecord, ownSandboxId, sandboxIdOf } from "./record.ts";
import { type Running } from "./running.ts";
import { largeFile } from "./unwritten.ts";

/** A readyz may take this long at least, whatever the request that woke the actor is ready to wait. */
const READY_WITHIN_MS = 60_000;
/** What was ready when it was saved has nothing to do first: a short wakeTimeout alone must not make a crash of it. */
const RESTORED_READY_WITHIN_MS = 10_000;

export interface ActorSandboxOptions extends ActorContext {
  /** Resolves when no operation is under way. */
  idle: () => Promise<void>;
  /** Called, before it is removed, for a sandbox that did not end by our will. */
  crashed: (message: string, cause: { byItself: boolean }) => void;
}

type SandboxRecord = NonNullable<ActorRecord["sandbox"]>;

/** How often it is looked whether it has come to the end of its processes. */
const LIMITS_EVERY_MS = 5000;

/** One actor's sandbox, from its start or adoption to its end, whoever ends it. */
export class ActorSandbox {
  readonly #options: ActorSandboxOptions;
  readonly #launcher: Launcher;
  #running: Running | undefined;
  /** The sandbox that a start under way makes. */
  #starting: { sandboxId: string; warmId: string | undefined; killed: boolean } | undefined;
  #limitsDueMs = 0;
  #lastUsage: readonly VolumeUsage[] = [];

  constructor(options: ActorSandboxOptions) {
    this.#options = options;
    this.#launcher = new Launcher(options.node);
  }

  get running(): Running | undefined {
    return this.#running;
  }

  /** As last measured, beside the limits of now. */
  get volumeUsage(): readonly VolumeUsage[] {
    const now = this.#running?.usage.usage ?? [];
    return now.length > 0 ? now : withLimits(this.#lastUsage, this.#options.record.program.volumeMounts);
  }

  /** Starts the program, or restores it; it is ready when this resolves. On failure its volumes are as before. */
  async start(image: UnpackedImage, from: Beginning, placement: Placement, phases: Phases): Promise<void> {
    const { node, name, record, files, volumes } = this.#options;
    const { program } = record;
    const outputFrom = outputSize(files.log);
    const { generation, restore, rootfsTar, connections } = from;
    const cold = restore === undefined;
    const shape = warmShape(program, image);
    // What is restored with a tar of its root file system says so at the creation.
    const warm = cold || rootfsTar !== undefined ? undefined : placement.slot(shape);
    const starting = { sandboxId: ownSandboxId(record.actor.uid), warmId: warm?.id, killed: false };
    this.#starting = starting;
    try {
      // It reaches a program at a cold start only: a restored one has in its memory what it was started with, and what
      // is run beside it gets the same.
      const environments = new EnvironmentFile(files.environment);
      const environment = cold ? await environments.begin() : await environments.of(from.envDigest);
      const binds = await phases.run("volumes", () => volumes.attach(program.volumeMounts, from.volumes));
      const launched = await this.#launcher.launch({
        id: starting.sandboxId,
        actor: record.actor,
        files,
        program,
        image,
        environment,
        volumes: binds,
        generation,
        ...(restore && { restore }),
        ...(connections && { connections }),
        ...(warm && { warm }),
        killed: () => starting.killed,
        ...(rootfsTar !== undefined && { rootfsTar }),
        readyWithinMs: Math.max(program.wakeTimeoutMs, cold ? READY_WITHIN_MS : RESTORED_READY_WITHIN_MS),
        phases,
        title: `actor ${name}`,
      });
      const startedAtMs = Date.now();
      volumes.started({ cold });
      record.sandbox = {
        sandboxId: launched.sandboxId,
        slotIndex: launched.slot.index,
        startedAtMs,
        imageDigest: image.digest,
        fromGeneration: generation,
        ...(from.origin !== undefined && { fromOrigin: from.origin }),
        cold,
        outputFrom,
        rootfsTar: rootfsTar !== undefined,
      };
      this.#running = {
        ...launched,
        booking: placement.booking,
        imageDigest: image.digest,
        rootfsTar: rootfsTar !== undefined,
        startedAtMs,
        cut: false,
        usage: this.#watchUsage(),
        load: this.#load(launched.sandboxId, cold),
      };
      record.envDigest = cold ? environment.digest : from.envDigest;
      record.crash = undefined;
      this.#watchLoad(this.#running, from.release);
      node.warm.started({ key: warmKey(program), shape });
    } catch (error) {
      await volumes.detach();
      await from.release();
      throw error;
    } finally {
      this.#starting = undefined;
    }
  }

  /** Whatever is under way with it fails. */
  async kill(): Promise<void> {
    const { runtime } = this.#options.node;
    if (this.#running !== undefined) await runtime.delete(this.#running.sandboxId);
    else if (this.#starting !== undefined) {
      const { sandboxId, warmId } = this.#starting;
      this.#starting.killed = true;
      await Promise.all([sandboxId, ...(warmId === undefined ? [] : [warmId])].map((id) => runtime.delete(id)));
    }
  }

  /** What an earlier atelet left running or paused goes on; one that can't is removed and counts as crashed. */
  async adopt(was: SandboxRecord, paused: boolean): Promise<void> {
    const { log, record, volumes, crashed } = this.#options;
    try {
      await volumes.load(true);
      await this.#adopt(was, paused);
    } catch (error) {
      // It must not keep the atelet, and so all other actors, from coming back.
      log.error("its sandbox cannot be adopted; removing it", { error });
      this.#running?.booking.free();
      await this.#running?.usage.stop();
      this.#running = undefined;
      await this.#launcher.stopAdopted(sandboxIdOf(record), was.slotIndex);
      await volumes.detach();
      await volumes.load(false);
      crashed(`its sandbox could not be adopted: ${asSubstrateError(error).message}`, { byItself: false });
      record.sandbox = undefined;
    }
  }

  /** How it ended by itself while there was no atelet; undefined if its node is what ended it. To be asked before `clear`. */
  endingMeanwhile(): Promise<string | undefined> {
    const { node, record } = this.#options;
    return endingMeanwhile(node, sandboxIdOf(record), record.program);
  }

  /** Removes what an earlier atelet left of a sandbox that is gone, or saved already. */
  async clear(was: SandboxRecord): Promise<void> {
    const { record, volumes } = this.#options;
    await this.#launcher.stopAdopted(sandboxIdOf(record), was.slotIndex);
    await volumes.load(false);
  }

  /**
   * Ends it and gives its room back. Joins an end under way.
   * @param asleep the image that it was saved in, which may go on with its connections.
   */
  async stop(running: Running, asleep?: SleepingImage): Promise<void> {
    const { record } = this.#options;
    // A liveness check may find it dead while it is being stopped: its slot must be given back once.
    running.stopped ??= this.#end(running, asleep).catch((error: unknown) => {
      running.stopped = undefined;
      throw error;
    });
    await running.stopped;
    if (this.#running !== running) return;
    this.#running = undefined;
    record.sandbox = undefined;
    running.booking.free();
  }

  /** Resolves when nothing of stopped sandboxes is left, their network included. */
  async settled(): Promise<void> {
    await this.#launcher.settled();
  }

  /** It ended by itself, or must be ended because it can't go on. */
  async died(running: Running, message: string): Promise<void> {
    const { node, record, crashed, save } = this.#options;
    if (this.#isEnding(running)) return;
    const why = await ending(node, running.sandboxId, record.program, message);
    // Meanwhile it may have been ended by our will.
    if (this.#isEnding(running)) return;
    crashed(why, { byItself: true });
    await this.stop(running);
    // Every cold life of a program that crashes leaves a layer.
    this.#options.volumes.flattenSoon();
    await save({ durable: false });
  }

  /** Whether the sandbox, if there is one, still lives; one that is being stopped is not judged. */
  async alive(): Promise<boolean> {
    const running = this.#running;
    if (running === undefined || running.stopped !== undefined) return true;
    return this.#options.node.runtime.alive(running.sandboxId);
  }

  /** Ends it, and throws, if a volume is above its limit: at a suspend it is not waited for a second measurement. */
  async refuseOverLimit(running: Running, phases: Phases): Promise<void> {
    const { usage } = running;
    const first = await phases.run("measure", () => usage.exceedsNow());
    const message = first && (await usage.exceedsNow());
    if (message === undefined) return;
    await this.died(running, message);
    throw new SubstrateError("PROGRAM_EXITED", `actor ${this.#options.name} was stopped: ${message}`);
  }

  /**
   * Why it can't go on, though nobody has asked it to end; undefined while it can. At its limit of processes a sandbox
   * stands still for ever: the runtime needs threads of its own for whatever its program does.
   */
  async ailment(): Promise<string | undefined> {
    if (!(await this.alive())) return "its program ended";
    const running = this.#running;
    if (running === undefined || performance.now() < this.#limitsDueMs) return undefined;
    this.#limitsDueMs = performance.now() + LIMITS_EVERY_MS;
    const { processes } = await this.#options.node.cgroups.limitsHit(running.sandboxId);
    return processes === undefined ? undefined : "it was stopped";
  }

  /** Nothing goes in or out, and it stands still, until `uncut`. */
  async cut(running: Running): Promise<void> {
    const { node } = this.#options;
    running.cut = true;
    await node.network.block(running.slot);
    await node.runtime.pause(running.sandboxId);
  }

  async uncut(running: Running): Promise<void> {
    const { node } = this.#options;
    await node.runtime.resume(running.sandboxId);
    await node.network.open(running.slot);
    running.cut = false;
  }

  /** The volumes go last: only when nothing of the sandbox is left can nobody write to them. */
  async #end(running: Running, asleep?: SleepingImage): Promise<void> {
    const { volumes } = this.#options;
    await this.#launcher.stop(running.sandboxId, running.slot, asleep);
    await running.usage.stop();
    if (running.usage.usage.length > 0) this.#lastUsage = running.usage.usage;
    await volumes.detach();
  }

  #load(sandboxId: string, cold: boolean): BackgroundLoad {
    const { runtime } = this.#options.node;
    return new BackgroundLoad(() => (cold ? Promise.resolve() : runtime.waitRestored(sandboxId)));
  }

  #watchUsage(): UsageWatch {
    const { record, volumes, idle, save, log } = this.#options;
    const failed = (error: unknown): void => {
      log.error("what a full volume means could not be recorded", { error });
    };
    return new UsageWatch({
      mounted: () => volumes.mounted(),
      limits: () => record.program.volumeMounts,
      crossed: () => {
        save({ durable: false }).catch(failed);
      },
      exceeded: (message) => {
        const running = this.#running;
        if (running === undefined) return;
        // A suspend under way measures by itself.
        idle()
          .then(() => this.died(running, message))
          .catch(failed);
      },
      log,
    });
  }

  async #adopt(was: SandboxRecord, paused: boolean): Promise<void> {
    const { node, record, generations, log } = this.#options;
    const { program } = record;
    const sandboxId = sandboxIdOf(record);
    const slot = node.network.adopt(was.slotIndex);
    const cut = record.grant.session !== node.session();
    const running: Running = {
      sandboxId,
      slot,
      endpoints: await this.#launcher.adopt(slot, program),
      booking: node.ledger.adopt(program.memoryBytes + RUNTIME_OVERHEAD_BYTES),
      imageDigest: was.imageDigest,
      startedAtMs: was.startedAtMs,
      rootfsTar: was.rootfsTar,
      cut,
      usage: this.#watchUsage(),
      load: this.#load(sandboxId, was.cold || (was.fromGeneration === 0 && was.fromOrigin === undefined)),
    };
    this.#running = running;
    await node.cgroups.moveBack(sandboxId);
    await node.cgroups.limitCpu(sandboxId, program.cpuMillis);
    if (paused && !cut) await node.runtime.resume(sandboxId);
    if (!paused && cut) await node.runtime.pause(sandboxId);
    await (cut ? node.network.block(slot) : node.network.open(slot));
    if (running.endpoints.length < program.ports.length) {
      running.endpoints = await this.#launcher.publish(slot, program);
    }
    const unpin =
      was.fromOrigin === undefined
        ? generations.local(was.fromGeneration) && generations.pin(was.fromGeneration)
        : node.origins.holdLoaded(was.fromOrigin)?.release;
    this.#watchLoad(running, unpin);
    log.info("adopted", { paused, cut, slot: slot.index });
  }

  /** The files of a background restore stay until its load has ended well; a load that fails is a crash (design.md §6). */
  #watchLoad(running: Running, unpin: (() => Promise<void>) | undefined): void {
    const { node, log, idle, generations, record } = this.#options;
    node.urgency
      .during(() => running.load.ended)
      .catch(async (error: unknown) => {
        // A suspend under way finds it by itself; a resume under way ends first.
        await idle();
        if (this.#isEnding(running)) return;
        log.error("the background load of its memory failed", { error });
        generations.distrust(record.sandbox?.fromGeneration ?? 0);
        await this.died(running, `loading its memory failed: ${asSubstrateError(error).message}`);
      })
      .then(() => unpin?.())
      .catch((error: unknown) => {
        log.error("cleaning up after a background load failed", { error });
      });
    running.load.ended
      .then(() => this.#loaded())
      .catch((error: unknown) => {
        log.debug("what was restored was not dropped from the page cache", { error });
      });
  }

  /** R18: of the actor's own image; a golden one is for others, too. */
  async #loaded(): Promise<void> {
    const { node, generations, record } = this.#options;
    const was = record.sandbox;
    if (was === undefined || was.cold || was.fromOrigin !== undefined) return;
    await node.writeBack.dropIfTight(largeFile(generations.path(was.fromGeneration), "Memory"));
  }

  #isEnding(running: Running): boolean {
    return this.#running !== running || running.stopped !== undefined;
  }
}
